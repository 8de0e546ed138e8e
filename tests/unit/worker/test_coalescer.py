"""What shares a frame, what waits, and what never does."""

import asyncio
from typing import Any

import pytest

from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.ipc.frames import FrameDecoder
from lmi_backend.worker.coalescer import AnswerSink, Coalescer
from lmi_backend.worker.outgoing import Outgoing
from tests.support.run.waiting import skip_time, turns

GAP = 3600.0
"""Between two ticks. No machine takes as long: they come where a test skips time."""


class Ear:
    """Keeps the frames a coalescer writes."""

    def __init__(self) -> None:
        self.frames: list[list[Any]] = []
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.FromWorker, limit=1 << 20)

    def write(self, frame: bytes) -> None:
        self.frames.append(self._decoder.feed(frame))

    @property
    def outputs(self) -> list[tuple[int, str]]:
        """Request number and text of each chunk."""
        return [(m.id, m.chunk.text) for frame in self.frames for m in frame]


@pytest.fixture
def ear() -> Ear:
    return Ear()


def _outgoing(ear: Ear, refused: list[int] | None = None) -> Outgoing:
    heard: list[int] = [] if refused is None else refused
    return Outgoing(ear.write, lambda: 0, on_refused=heard.append)


def _coalescer(ear: Ear, **policy: Any) -> Coalescer:
    coalescer = Coalescer(_outgoing(ear))
    coalescer.set_flush_policy(FlushPolicy(**policy))
    return coalescer


async def _ticked(ear: Ear) -> Coalescer:
    """Return a coalescer that has just said two tokens of requests 1 and 2."""
    coalescer = _coalescer(ear, flush_seconds=GAP)
    for number in (1, 2):
        coalescer.open(number)
        coalescer.add(number, _token("a"))
        coalescer.add(number, _token("b"))
    await turns()
    assert sorted(ear.outputs) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    ear.frames.clear()
    return coalescer


def _token(text: str, *, is_last: bool = False) -> Delta:
    return Delta(text, num_tokens=1, finish_reason="stop" if is_last else None)


async def test_the_first_token_goes_at_once(ear: Ear) -> None:
    coalescer = await _ticked(ear)
    coalescer.open(3)
    for number in (1, 2, 3):
        coalescer.add(number, _token("c"))
    await turns()
    assert ear.outputs == [(3, "c")]


async def test_the_first_tick_comes_at_once_where_the_clock_has_just_begun(
    ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_time(monkeypatch, -asyncio.get_running_loop().time())
    await _ticked(ear)


async def test_the_end_goes_at_once_with_what_waited(ear: Ear) -> None:
    coalescer = await _ticked(ear)
    for number in (1, 2):
        coalescer.add(number, _token("c"))
    coalescer.add(1, _token("d", is_last=True))
    await turns()
    assert ear.outputs == [(1, "cd")]


async def test_all_that_waits_leaves_together(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    coalescer = await _ticked(ear)
    for text in "cd":
        for number in (1, 2):
            coalescer.add(number, _token(text))
    skip_time(monkeypatch, GAP)
    await turns()
    assert len(ear.frames) == 1
    assert ear.outputs == [(1, "cd"), (2, "cd")]


async def test_pieces_wait_no_longer_than_the_gap(
    ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    coalescer = await _ticked(ear)
    for _ in range(40):
        coalescer.add(1, _token("x"))
        skip_time(monkeypatch, GAP / 4)
        await turns()
    assert ear.outputs == [(1, "xxxx")] * 10


async def test_answers_grow_to_the_least_number_of_tokens(ear: Ear) -> None:
    coalescer = _coalescer(ear, flush_seconds=0, min_tokens=3)
    coalescer.open(1)
    for text in "abcdefg":
        coalescer.add(1, _token(text))
        await turns()
    coalescer.add(1, _token("h", is_last=True))
    await turns()
    assert ear.outputs == [(1, "a"), (1, "bcd"), (1, "efg"), (1, "h")]


async def test_what_has_no_tokens_is_not_held_for_more(ear: Ear) -> None:
    coalescer = _coalescer(ear, flush_seconds=0, min_tokens=3)
    coalescer.open(1)
    for data in (b"a", b"b"):
        coalescer.add(1, HttpChunk(data))
        await turns()
    assert [m.chunk.data for frame in ear.frames for m in frame] == [b"a", b"b"]


async def test_a_failure_comes_after_what_there_is(ear: Ear) -> None:
    coalescer = await _ticked(ear)
    coalescer.add(1, _token("c"))
    coalescer.fail(msg.Failure(1, "engine", "broken"))
    coalescer.add(1, _token("too late"))
    await turns()
    ((rest, failure),) = ear.frames
    assert (rest.chunk.text, failure.message) == ("c", "broken")


async def test_a_closed_request_says_nothing_more(
    ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    coalescer = await _ticked(ear)
    coalescer.add(1, _token("c"))
    coalescer.add(2, _token("c"))
    coalescer.close(1)
    coalescer.add(1, _token("d"))
    skip_time(monkeypatch, GAP)
    await turns()
    assert ear.outputs == [(2, "c")]


async def test_a_follower_sends_heartbeats_and_no_answers(ear: Ear) -> None:
    outgoing = _outgoing(ear)
    coalescer = Coalescer(outgoing, is_follower=True)
    coalescer.open(1)
    coalescer.add(1, _token("a", is_last=True))
    coalescer.fail(msg.Failure(1, "engine", "broken"))
    outgoing.send(msg.Heartbeat(EngineStats()))
    await turns()
    assert [[type(m) for m in frame] for frame in ear.frames] == [[msg.Heartbeat]]


async def test_answers_of_one_request_keep_apart(ear: Ear) -> None:
    coalescer = await _ticked(ear)
    for index in (0, 1, 0, 1):
        coalescer.add(1, Delta("x", num_tokens=1, index=index))
    coalescer.add(1, Delta("end", index=1, finish_reason="stop"))
    await turns()
    assert [(m.chunk.index, m.chunk.text) for m in ear.frames[0]] == [(0, "xx"), (1, "xxend")]


async def test_tokens_may_stay_with_the_engine_and_are_flushed_when_it_is_time(
    ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    coalescer = await _ticked(ear)
    sink, held = coalescer.sink(1, 0), ["c", "d"]

    def flush() -> None:
        sink.take(Delta("".join(held), num_tokens=len(held)))
        held.clear()

    assert sink.defer(flush, 1)
    assert sink.defer(flush, 1)
    coalescer.add(2, _token("c"))
    skip_time(monkeypatch, GAP)
    await turns()
    assert [sorted((m.id, m.chunk.text) for m in frame) for frame in ear.frames] == [
        [(1, "cd"), (2, "c")]
    ]
    # It ticks on after that.
    ear.frames.clear()
    held.append("e")
    assert sink.defer(flush, 1)
    skip_time(monkeypatch, GAP)
    await turns()
    assert ear.outputs == [(1, "e")]


async def test_no_token_waits_elsewhere_that_would_not_wait_here(ear: Ear) -> None:
    coalescer = _coalescer(ear, flush_seconds=GAP)
    coalescer.open(1)
    sink = coalescer.sink(1, 0)
    assert not sink.defer(lambda: None, 1), "the first token goes at once"
    sink.take(_token("a"))
    assert sink.defer(lambda: None, 1)
    coalescer.set_flush_policy(FlushPolicy())
    coalescer.open(2)
    assert not sink.defer(lambda: None, 1), "a few streams are not slowed at all"
    coalescer.close(1)
    assert not sink.defer(lambda: None, 1), "a closed request has nothing to wait for"


async def test_tokens_stay_with_the_engine_until_they_are_as_many_as_the_policy_wants(
    ear: Ear,
) -> None:
    coalescer = _coalescer(ear, min_tokens=3)
    coalescer.open(1)
    sink = AnswerSink(coalescer, 1, turns)
    sink.take(HttpChunk(b"a", num_tokens=1))
    assert [sink.defer(lambda: None, number) for number in (1, 2, 3)] == [True, True, False]


async def test_what_waits_elsewhere_is_said_before_a_failure(ear: Ear) -> None:
    coalescer = _coalescer(ear, flush_seconds=GAP)
    coalescer.open(1)
    sink = coalescer.sink(1, 4)
    sink.take(_token("a"))
    assert sink.defer(lambda: sink.take(_token("b")), 1)
    coalescer.fail(msg.Failure(1, "engine", "it broke"))
    await turns()
    (frame,) = ear.frames
    chunks, failure = frame[:-1], frame[-1]
    assert "".join(m.chunk.text for m in chunks) == "ab"
    assert {m.chunk.index for m in chunks} == {4}
    assert isinstance(failure, msg.Failure)


async def test_a_flush_that_raises_fails_its_own_request(
    ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other streams of the worker have their ticks still."""
    refused: list[int] = []
    coalescer = Coalescer(_outgoing(ear, refused))
    coalescer.set_flush_policy(FlushPolicy(flush_seconds=GAP))
    for number in (1, 2, 3):
        coalescer.open(number)
        coalescer.add(number, _token("a"))

    def broken() -> None:
        raise RuntimeError("no such token")

    for _ in range(2):
        await turns()
        ear.frames.clear()
        assert coalescer.defer(1, broken, 1)
        coalescer.add(2, _token("b"))
        assert coalescer.defer(3, lambda: coalescer.add(3, _token("b")), 1)
        skip_time(monkeypatch, GAP)
        await turns()
        messages = [message for frame in ear.frames for message in frame]
        failures = [each for each in messages if isinstance(each, msg.Failure)]
        outputs = [each for each in messages if isinstance(each, msg.Output)]
        assert [(each.id, each.kind) for each in failures] == [(1, "engine")]
        assert failures[0].message == "RuntimeError: no such token"
        assert sorted((each.id, each.chunk.text) for each in outputs) == [(2, "b"), (3, "b")]
    assert refused == [1, 1]


async def test_a_request_fails_for_its_first_reason_also_where_its_flush_raises(ear: Ear) -> None:
    coalescer = _coalescer(ear, flush_seconds=GAP)
    coalescer.open(1)
    coalescer.add(1, _token("a"))

    def broken() -> None:
        raise RuntimeError("no such token")

    assert coalescer.defer(1, broken, 1)
    coalescer.fail(msg.Failure(1, "engine", "it broke"))
    await turns()
    (*_, failure) = ear.frames[-1]
    assert failure.message == "it broke"
