"""Output that the stub could not read, or does not read, fails its own request."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lmi_backend.generation import Delta, HttpChunk, Token
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities, EngineStats
from lmi_backend.ipc.events import outputs_of
from lmi_backend.ipc.frames import FrameDecoder
from lmi_backend.tokenization import pack
from lmi_backend.worker.outgoing import MOST_UNSENT, Outgoing

LIMIT = 100_000
HALF = "\ud800"
"""One of a pair of surrogates, which UTF-8 cannot have."""


class Odd:
    """A value that nothing packs."""


class Reader:
    """The stub's end of a socket: it reads as the stub does, which raises at a bad frame."""

    def __init__(self, unsent: int = 0) -> None:
        self.unsent = unsent
        self.refused: list[int] = []
        self.messages: list[Any] = []
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.FromWorker, limit=LIMIT)
        self.outgoing = Outgoing(self._write, lambda: self.unsent, on_refused=self.refused.append)
        self.outgoing.largest_frame = LIMIT

    def _write(self, frame: bytes) -> None:
        self.messages += self._decoder.feed(frame)

    def of(self, number: int) -> list[Any]:
        return [each for each in self.messages if getattr(each, "id", None) == number]

    async def send(self, *messages: Any) -> None:
        for message in messages:
            self.outgoing.send(message)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def odd(value: Any) -> Any:
    """Pass over a field's type, as users' code and engines do."""
    return value


CHUNKS: dict[str, Callable[[], Any]] = {
    "a status in words": lambda: HttpChunk(b"", status=odd("404")),
    "a status of no size": lambda: HttpChunk(b"", status=1 << 70),
    "a header that is a number": lambda: HttpChunk(b"", headers=odd({"x-count": 5})),
    "a header's name that is none": lambda: HttpChunk(b"", headers=odd({None: "x"})),
    "a header that is no text": lambda: HttpChunk(b"", headers={"x": HALF}),
    "headers that are a list": lambda: HttpChunk(b"", headers=odd([("x", "y")])),
    "data that are text": lambda: HttpChunk(odd("text")),
    "data that are missing": lambda: HttpChunk(odd(None)),
    "data that are a list": lambda: HttpChunk(odd([1])),
    "a number of tokens that is none": lambda: HttpChunk(b"", num_tokens=odd(1.5)),
    "a text that is none": lambda: Delta(odd(None)),
    "a text that is no text": lambda: Delta(HALF),
    "an unknown reason": lambda: Delta("a", finish_reason=odd("tool_calls")),
    "an odd reason": lambda: Delta("a", finish_reason="stop", stop_reason=odd(Odd())),
    "a token's id of numpy": lambda: Delta("a", tokens=(Token(odd(Odd()), "a"),)),
    "what is nested deeply": lambda: Delta("a", tokens=odd(nested(100_000))),
    "too much": lambda: HttpChunk(bytes(2 * LIMIT)),
}


@pytest.mark.parametrize("kind", CHUNKS)
async def test_what_cannot_be_sent_fails_its_own_request(kind: str) -> None:
    reader = Reader()
    chunk = CHUNKS[kind]()
    message = msg.Output(2, chunk)
    heartbeat = msg.Heartbeat(EngineStats(running=3))
    await reader.send(msg.Output(1, Delta("a")), message, msg.Output(3, Delta("c")), heartbeat)
    assert [each.chunk.text for number in (1, 3) for each in reader.of(number)] == ["a", "c"]
    (failure,) = reader.of(2)
    assert isinstance(failure, msg.Failure)
    if kind == "too much":
        assert failure.field == "the answer"
        assert f"at most {LIMIT} (option.max_output_size)" in failure.message
    assert reader.refused == [2]
    assert heartbeat in reader.messages


async def test_events_of_a_turn_travel_in_columns() -> None:
    reader = Reader()
    for number in (1, 2):
        reader.outgoing.send_chunk(number, HttpChunk(b"a", num_tokens=1, ids=pack([7])))
    await asyncio.sleep(0)
    assert reader.messages == [msg.Events([1, 2], [b"a"] * 2, [pack([7])] * 2)]


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        *((make, bad) for make in (HttpChunk, Delta) for bad in (odd(["b"]), HALF, Odd())),
        (HttpChunk, bytes(2 * LIMIT)),
        (Delta, "x" * 2 * LIMIT),
    ],
)
async def test_an_event_that_cannot_be_sent_fails_its_own_request(make: Any, bad: Any) -> None:
    reader = Reader()
    good = [b"a", b"c"] if make is HttpChunk else ["a", "c"]
    for number, data in ((1, good[0]), (2, bad), (3, good[1])):
        reader.outgoing.send_chunk(number, make(data, num_tokens=1, ids=pack([7])))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    events = [each for m in reader.messages if isinstance(m, msg.Events) for each in outputs_of(m)]
    sent = [(each.id, each.chunk) for each in (*events, *reader.of(1), *reader.of(3))]
    assert sent == [
        (n, make(data, num_tokens=1, ids=pack([7]))) for n, data in zip((1, 3), good, strict=True)
    ]
    assert [type(each) for each in reader.of(2)] == [msg.Failure]
    assert reader.refused == [2]


@pytest.mark.parametrize("text", [HALF, "x" * 2 * LIMIT])
async def test_a_request_fails_also_where_the_reason_cannot_be_sent(text: str) -> None:
    reader = Reader()
    await reader.send(msg.Failure(1, "request", text), msg.Output(2, Delta("b")))
    assert [type(each) for each in reader.of(1)] == [msg.Failure]
    assert [each.chunk.text for each in reader.of(2)] == ["b"]


async def test_the_worker_beats_and_starts_whatever_its_engine_tells() -> None:
    reader = Reader()
    await reader.send(msg.Heartbeat(EngineStats(running=odd(Odd()))))
    await reader.send(msg.StartFailed(HALF))
    await reader.send(msg.Ready(Capabilities(odd(None), "", 0)))
    heartbeat, failed = reader.messages
    assert heartbeat == msg.Heartbeat(EngineStats())
    assert isinstance(failed, msg.StartFailed)


async def test_output_for_a_stub_that_reads_nothing_is_bounded() -> None:
    """What waits already waits on; requests that add to it fail, and nothing else does."""
    reader = Reader(unsent=MOST_UNSENT)
    await reader.send(msg.Output(1, Delta("a")))
    assert [each.chunk.text for each in reader.of(1)] == ["a"]
    reader.unsent += 1
    beat = msg.Heartbeat(EngineStats())
    await reader.send(msg.Output(1, Delta("b")), beat, msg.Output(2, Delta("b")))
    failures = [each for each in reader.messages if isinstance(each, msg.Failure)]
    assert [(each.id, each.kind) for each in failures] == [(1, "unavailable"), (2, "unavailable")]
    assert "the stub does not read more than 268435456 bytes" in failures[0].message
    assert beat in reader.messages
    assert reader.refused == [1, 2]
