"""Which chunks travel in columns, and that they are the same at the other end."""

from typing import Any

import msgspec
import pytest

from lmi_backend.generation import Chunk, Delta, HttpChunk, Token
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, is_event, outputs_of
from lmi_backend.tokenization import pack

IDS = pack([5]) + pack([6])
EVENT = HttpChunk(b"data: {}\n\n", num_tokens=2, ids=IDS)
_TOKENS = (Token(5, "a", -0.5, 1, top=(Token(7, "b", -0.25, 2),)), Token(6, "b", is_special=True))
DELTA = Delta("ab", 2, None, None, 3, 1, _TOKENS, cumulative_logprob=-2.5, ids=IDS)


def _event(data: bytes, token_id: int) -> HttpChunk:
    return HttpChunk(data, num_tokens=1, ids=pack([token_id]))


@pytest.mark.parametrize("event", [EVENT, DELTA], ids=["of a body", "of a generated answer"])
def test_an_event_is_the_same_chunk_at_the_other_end(event: Chunk) -> None:
    assert is_event(event)
    messages: list[Any] = []
    append_event(messages, 1, event)
    assert [(each.id, each.chunk) for each in outputs_of(messages[0])] == [(1, event)]
    assert event.ids == IDS


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(HttpChunk(b"x", is_last=True, num_tokens=1, ids=pack([5])), id="the last"),
        pytest.param(HttpChunk(b"x", headers={"a": "b"}, num_tokens=1, ids=pack([5])), id="first"),
        pytest.param(HttpChunk(b"x", status=400, num_tokens=1, ids=pack([5])), id="an error"),
        pytest.param(HttpChunk(b"x", num_tokens=1), id="tokens whose ids are not known"),
        pytest.param(HttpChunk(b"x", num_tokens=0, ids=pack([5])), id="ids whose tokens were had"),
        pytest.param(HttpChunk(b"x"), id="no tokens"),
        pytest.param(Delta("x", 1, "stop", ids=pack([5])), id="the last delta"),
        pytest.param(Delta("x", 1), id="a delta whose ids are not known"),
        pytest.param(Delta("x"), id="a delta without a token"),
    ],
)
def test_what_says_more_is_none(chunk: Chunk) -> None:
    assert not is_event(chunk)


def test_nothing_passes_what_was_said_before_it() -> None:
    messages: list[Any] = []
    append_event(messages, 1, _event(b"a", 5))
    append_event(messages, 2, _event(b"b", 6))
    messages.append(msg.Output(3, HttpChunk(b"c", headers={"x": "y"})))
    append_event(messages, 3, _event(b"d", 7))
    append_event(messages, 3, _event(b"e", 8))
    sent = [
        (each.id, each.chunk.data)
        for message in messages
        for each in (outputs_of(message) if isinstance(message, msg.Events) else (message,))
    ]
    assert sent == [(1, b"a"), (2, b"b"), (3, b"c"), (3, b"d"), (3, b"e")]
    assert [type(message) for message in messages] == [msg.Events, msg.Output, msg.Events]


def test_each_kind_has_columns_of_its_own() -> None:
    messages: list[Any] = []
    for number in range(3):
        append_event(messages, 2 * number, EVENT)
        append_event(messages, 2 * number + 1, DELTA)
    assert [(type(each), each.ids) for each in messages] == [
        (msg.Events, [0, 2, 4]),
        (msg.Deltas, [1, 3, 5]),
    ]
    messages.append(msg.Output(1, Delta("x", 1, "stop")))
    append_event(messages, 3, DELTA)
    assert messages[3].ids == [3]
    assert [type(each) for each in outputs_of(messages[1])] == [msg.Output] * 3


@pytest.mark.parametrize(
    "bad",
    [Delta("\ud800", 1, ids=pack([5])), Delta(5, 1, ids=pack([5]))],  # type: ignore[arg-type]
    ids=["what cannot be packed", "what cannot be read"],
)
def test_a_delta_that_cannot_travel_is_left_as_it_was(bad: Delta) -> None:
    messages: list[Any] = []
    with pytest.raises((ValueError, msgspec.MsgspecError), match=r"surrogates|Expected `str`"):
        append_event(messages, 1, bad)
    assert not messages
    assert bad.ids == pack([5])
