"""An answer that is written again: what its client gets of it."""

import re
from types import SimpleNamespace

import pytest

from lmi_backend.clients.responses import EventNames
from lmi_backend.errors import EngineError
from lmi_backend.generation import Continuation, Delta, HttpChunk
from lmi_backend.tokenization import pack
from lmi_backend.worker.continuation import ContinuedDeltas, ContinuedSink


class Sink:
    def __init__(self) -> None:
        self.data = b""
        self.num_tokens = 0
        self.defer = self.drain = None

    def take(self, chunk: HttpChunk) -> None:
        self.data += chunk.data
        self.num_tokens += chunk.num_tokens


def event(name: str, text: str, created: int = 5) -> bytes:
    head = f'"id":"{name}","object":"chat","created":{created}'
    return f'data: {{{head},"text":"{text}"}}\n\n'.encode()


HOSTILE = r"\",\"object\":\"chat\",\"created\":1,\\"
"""An id of a client's, in JSON."""


@pytest.mark.parametrize(
    ("first", "second"),
    [("first", "second"), (r"k\"135\"", r"k\"135\""), (HOSTILE, HOSTILE), (r"\\", r"\u0022")],
)
def test_what_the_client_has_is_dropped_and_the_rest_keeps_its_name(
    first: str, second: str
) -> None:
    sink = Sink()
    continued = ContinuedSink(sink, Continuation(b"", 3 * 2, event(first, "a")))  # type: ignore[arg-type]
    # Other chunks than before, and another time.
    for texts in ("a", "bcd", "e"):
        data = b"".join(event(second, text, 70) for text in texts)
        continued.take(HttpChunk(data, num_tokens=len(texts)))
    continued.take(HttpChunk(b"data: [DONE]\n\n", is_last=True))
    assert sink.data == event(first, "d") + event(first, "e") + b"data: [DONE]\n\n"


def response(name: str, item: str, created: int) -> list[bytes]:
    """Return the events of a response, whose text has what looks like a name."""
    quoted = '\\"id\\":\\"msg_1\\"'
    events = [
        f'{{"response":{{"id":"{name}","created_at":{created}}}}}',
        f'{{"item":{{"id":"{item}","call_id":"call_{item}"}}}}',
        f'{{"item_id":"{item}","delta":"{quoted}"}}',
        f'{{"item_id":"{item}","call_id":"call_{item}"}}',
        f'{{"response":{{"id":"{name}","created_at":{created},"output":[{{"id":"{item}x"}}]}}}}',
    ]
    return [f"event: e\ndata: {event}\n\n".encode() for event in events]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_response_keeps_the_names_that_its_client_has(count: int) -> None:
    first, again = response("resp_1", "msg_1", 1700000000), response("resp_2", "msg_2", 1700000007)
    names = EventNames()
    # However its bytes were cut.
    for byte in b"".join(first[:count]):
        names.add(bytes([byte]))
    sink, where = Sink(), Continuation(b"", 3 * count, first[0], names=names.text)
    continued = ContinuedSink(sink, where)  # type: ignore[arg-type]
    for event_data in again:
        continued.take(HttpChunk(event_data))
    # It had no item's name yet, so that of now is right.
    expected = response("resp_1", "msg_1" if count > 1 else "msg_2", 1700000000)
    expected[-1] = expected[-1].replace(b'"msg_1x"', b'"msg_2x"')
    assert sink.data == b"".join(expected[count:])


def test_a_response_with_fewer_names_is_another() -> None:
    events = response("resp_1", "msg_1", 1700000000)
    names = EventNames()
    names.add(b"".join(events[:2]))
    where = Continuation(b"", 3, events[0], names=names.text)
    with pytest.raises(EngineError, match="the answer cannot resume"):
        ContinuedSink(Sink(), where).take(HttpChunk(events[0]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chunk", "why"),
    [
        (HttpChunk(b'{"its": "error"}', is_last=True, status=400), '{"its": "error"}'),
        (HttpChunk(event("a", "b"), is_last=True), "it is another on this worker"),
        (HttpChunk(b'data: {"error":{"code":5}}\n\n', is_last=True), '{"error":{"code":5}}'),
    ],
)
def test_an_answer_that_is_another_now_ends_with_an_error(chunk: HttpChunk, why: str) -> None:
    sink = Sink()
    with pytest.raises(EngineError, match=f"the answer cannot resume: .*{re.escape(why)}"):
        ContinuedSink(sink, Continuation(b"", 4, b"")).take(chunk)  # type: ignore[arg-type]
    assert sink.data == b""


@pytest.mark.parametrize("count", [2, 3])
def test_deltas_are_handed_on_after_the_tokens_that_the_client_has(count: int) -> None:
    """The end is also where it has all of them."""
    seen: list[Delta] = []
    sink = SimpleNamespace(take=seen.append, defer=None)
    groups = [[1], [2, 3], [4]]
    known = Continuation(b"".join(map(pack, groups[:count])))
    continued = ContinuedDeltas(sink, known)  # type: ignore[arg-type]
    deltas = [*(Delta("a", len(group)) for group in groups), Delta("", 0, "length")]
    for delta in deltas:
        continued.take(delta)
    assert seen == deltas[count:]
