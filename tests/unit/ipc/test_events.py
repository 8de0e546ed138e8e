"""Which chunks travel in columns, and that they are the same at the other end."""

from typing import Any

import pytest

from lmi_backend.generation import Chunk, Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, chunks_of, is_event, outputs_of
from lmi_backend.token_ids import pack

EVENT = HttpChunk(b"data: {}\n\n", num_tokens=2, ids=pack([5]) + pack([6]))


def _event(data: bytes, token_id: int) -> HttpChunk:
    return HttpChunk(data, num_tokens=1, ids=pack([token_id]))


def test_an_event_is_the_same_chunk_at_the_other_end() -> None:
    assert is_event(EVENT)
    messages: list[Any] = []
    append_event(messages, 1, EVENT)
    assert chunks_of(messages[0]) == [(1, EVENT)]


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(HttpChunk(b"x", is_last=True, num_tokens=1, ids=pack([5])), id="the last"),
        pytest.param(HttpChunk(b"x", headers={"a": "b"}, num_tokens=1, ids=pack([5])), id="first"),
        pytest.param(HttpChunk(b"x", status=400, num_tokens=1, ids=pack([5])), id="an error"),
        pytest.param(HttpChunk(b"x", num_tokens=1), id="tokens whose ids are not known"),
        pytest.param(HttpChunk(b"x", num_tokens=0, ids=pack([5])), id="ids whose tokens were had"),
        pytest.param(HttpChunk(b"x"), id="no tokens"),
        pytest.param(Delta("x", 1, ids=pack([5])), id="a delta"),
    ],
)
def test_what_says_more_is_none(chunk: Chunk) -> None:
    assert not is_event(chunk)


def test_nothing_passes_what_was_said_before_it() -> None:
    messages: list[Any] = []
    append_event(messages, 1, _event(b"a", 5))
    append_event(messages, 2, _event(b"b", 6))
    messages.append(msg.HttpOutput(3, HttpChunk(b"c", headers={"x": "y"})))
    append_event(messages, 3, _event(b"d", 7))
    append_event(messages, 3, _event(b"e", 8))
    sent = [
        (each.id, each.chunk.data)
        for message in messages
        for each in (outputs_of(message) if isinstance(message, msg.Events) else (message,))
    ]
    assert sent == [(1, b"a"), (2, b"b"), (3, b"c"), (3, b"d"), (3, b"e")]
    assert [type(message) for message in messages] == [msg.Events, msg.HttpOutput, msg.Events]
