"""What shares a frame, what waits, and what never does."""

import asyncio
from typing import Any

import pytest

from lmi_backend.generation import Chunk, Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.flush_policy import Pace
from lmi_backend.ipc.frames import FrameDecoder
from lmi_backend.worker.coalescer import Outbox

NEVER = 3600.0
SOON = 0.02


class Ear:
    """Keeps the frames an outbox writes."""

    def __init__(self) -> None:
        self.frames: list[list[Any]] = []
        self._decoder: FrameDecoder[Any] = FrameDecoder(msg.FromWorker, limit=1 << 20)

    def write(self, frame: bytes) -> None:
        self.frames.append(self._decoder.feed(frame))

    @property
    def said(self) -> list[tuple[int, str]]:
        """Request number and text of each piece."""
        return [(m.id, m.piece.text) for frame in self.frames for m in frame]


@pytest.fixture
def ear() -> Ear:
    return Ear()


def _outbox(ear: Ear, **pace: Any) -> Outbox:
    outbox = Outbox(ear.write)
    outbox.set_pace(Pace(**pace))
    return outbox


async def _ticked(ear: Ear, seconds: float) -> Outbox:
    """Return an outbox that has just said two tokens of requests 1 and 2."""
    outbox = _outbox(ear, flush_seconds=seconds)
    for number in (1, 2):
        outbox.open(number)
        outbox.add(number, _token("a"))
        outbox.add(number, _token("b"))
    await _turns()
    assert sorted(ear.said) == [(1, "a"), (1, "b"), (2, "a"), (2, "b")]
    ear.frames.clear()
    return outbox


def _token(text: str, *, is_last: bool = False) -> Delta:
    return Delta(text, num_tokens=1, finish_reason="stop" if is_last else None)


async def _turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_all_of_one_step_travels_in_one_frame(ear: Ear) -> None:
    outbox = _outbox(ear, flush_seconds=0)
    for step in "ab":
        for number in range(3):
            if step == "a":
                outbox.open(number)
            outbox.add(number, _token(step))
        await _turns()
    assert [len(frame) for frame in ear.frames] == [3, 3]


async def test_the_first_token_goes_at_once(ear: Ear) -> None:
    outbox = await _ticked(ear, NEVER)
    outbox.open(3)
    for number in (1, 2, 3):
        outbox.add(number, _token("c"))
    await _turns()
    assert ear.said == [(3, "c")]


async def test_the_first_tick_comes_at_once_where_the_clock_has_just_begun(
    ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    clock, began = loop.time, loop.time()
    monkeypatch.setattr(loop, "time", lambda: clock() - began)
    await _ticked(ear, NEVER)


async def test_the_end_goes_at_once_with_what_waited(ear: Ear) -> None:
    outbox = await _ticked(ear, NEVER)
    for number in (1, 2):
        outbox.add(number, _token("c"))
    outbox.add(1, _token("d", is_last=True))
    await _turns()
    assert ear.said == [(1, "cd")]


async def test_all_that_waits_leaves_together(ear: Ear) -> None:
    outbox = await _ticked(ear, SOON)
    for text in "cd":
        for number in (1, 2):
            outbox.add(number, _token(text))
    await asyncio.sleep(SOON)
    await _turns()
    assert len(ear.frames) == 1
    assert ear.said == [(1, "cd"), (2, "cd")]


async def test_pieces_wait_no_longer_than_the_gap(ear: Ear) -> None:
    outbox = await _ticked(ear, SOON)
    loop = asyncio.get_running_loop()
    began = loop.time()
    while loop.time() < began + 10 * SOON:
        outbox.add(1, _token("x"))
        await asyncio.sleep(SOON / 20)
    # One a gap; a busy machine makes them fewer, never more.
    assert 1 <= len(ear.frames) <= 12


async def test_answers_grow_to_the_least_number_of_tokens(ear: Ear) -> None:
    outbox = _outbox(ear, flush_seconds=0, min_tokens=3)
    outbox.open(1)
    for text in "abcdefg":
        outbox.add(1, _token(text))
        await _turns()
    outbox.add(1, _token("h", is_last=True))
    await _turns()
    assert ear.said == [(1, "a"), (1, "bcd"), (1, "efg"), (1, "h")]


async def test_what_has_no_tokens_is_not_held_for_more(ear: Ear) -> None:
    outbox = _outbox(ear, flush_seconds=0, min_tokens=3)
    outbox.open(1)
    for data in (b"a", b"b"):
        outbox.add(1, Chunk(data))
        await _turns()
    assert [m.piece.data for frame in ear.frames for m in frame] == [b"a", b"b"]


async def test_a_failure_comes_after_what_there_is(ear: Ear) -> None:
    outbox = await _ticked(ear, NEVER)
    outbox.add(1, _token("c"))
    outbox.fail(msg.Failure(1, "engine", "broken"))
    outbox.add(1, _token("too late"))
    await _turns()
    ((rest, failure),) = ear.frames
    assert (rest.piece.text, failure.message) == ("c", "broken")


async def test_a_closed_request_says_nothing_more(ear: Ear) -> None:
    outbox = await _ticked(ear, SOON)
    outbox.add(1, _token("c"))
    outbox.add(2, _token("c"))
    outbox.close(1)
    outbox.add(1, _token("d"))
    await asyncio.sleep(SOON)
    await _turns()
    assert ear.said == [(2, "c")]


async def test_a_mute_one_keeps_its_answers_and_beats(ear: Ear) -> None:
    outbox = Outbox(ear.write, is_mute=True)
    outbox.open(1)
    outbox.add(1, _token("a", is_last=True))
    outbox.fail(msg.Failure(1, "engine", "broken"))
    outbox.send(msg.Heartbeat(EngineStats()))
    await _turns()
    assert [[type(m) for m in frame] for frame in ear.frames] == [[msg.Heartbeat]]


async def test_answers_of_one_request_keep_apart(ear: Ear) -> None:
    outbox = await _ticked(ear, NEVER)
    for index in (0, 1, 0, 1):
        outbox.add(1, Delta("x", num_tokens=1, index=index))
    outbox.add(1, Delta("end", index=1, finish_reason="stop"))
    await _turns()
    assert [(m.piece.index, m.piece.text) for m in ear.frames[0]] == [(0, "xx"), (1, "xxend")]


async def test_tokens_may_wait_where_they_are_and_are_asked_for_when_it_is_time(ear: Ear) -> None:
    outbox = await _ticked(ear, SOON)
    taker, held = outbox.taker(1, 0), ["c", "d"]

    def give() -> None:
        taker.take(Delta("".join(held), num_tokens=len(held)))
        held.clear()

    assert taker.may_wait(give)
    assert taker.may_wait(give)
    outbox.add(2, _token("c"))
    await asyncio.sleep(3 * SOON)
    assert [sorted((m.id, m.piece.text) for m in frame) for frame in ear.frames] == [
        [(1, "cd"), (2, "c")]
    ]
    # It ticks on after that.
    ear.frames.clear()
    held.append("e")
    assert taker.may_wait(give)
    await asyncio.sleep(3 * SOON)
    assert ear.said == [(1, "e")]


async def test_no_token_waits_elsewhere_that_would_not_wait_here(ear: Ear) -> None:
    outbox = _outbox(ear, flush_seconds=NEVER)
    outbox.open(1)
    taker = outbox.taker(1, 0)
    assert not taker.may_wait(lambda: None), "the first token goes at once"
    taker.take(_token("a"))
    assert taker.may_wait(lambda: None)
    outbox.set_pace(Pace())
    outbox.open(2)
    assert not taker.may_wait(lambda: None), "a few streams are not slowed at all"
    outbox.close(1)
    assert not taker.may_wait(lambda: None), "a closed request has nothing to wait for"


async def test_what_waits_elsewhere_is_said_before_a_failure(ear: Ear) -> None:
    outbox = _outbox(ear, flush_seconds=NEVER)
    outbox.open(1)
    taker = outbox.taker(1, 4)
    taker.take(_token("a"))
    assert taker.may_wait(lambda: taker.take(_token("b")))
    outbox.fail(msg.Failure(1, "engine", "it broke"))
    await _turns()
    (frame,) = ear.frames
    pieces, failure = frame[:-1], frame[-1]
    assert "".join(m.piece.text for m in pieces) == "ab"
    assert {m.piece.index for m in pieces} == {4}
    assert isinstance(failure, msg.Failure)
