"""What all requests hold decoded has a bound; who waits gets room in turn, or is refused."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lmi_backend.engines.vllm import images
from lmi_backend.engines.vllm.images import TIMES, MediaBudget, NoRoomError, Pixels
from lmi_backend.errors import UnavailableError
from tests.support.waiting import HANG_SECONDS

MOST = 100


def _request(budget: MediaBudget, most: int = MOST) -> Pixels:
    return Pixels(most, budget, lambda: "accepted: fewer")


def _full(budget: MediaBudget) -> list[Pixels]:
    """Return requests that leave the share of the oldest alone."""
    requests = [_request(budget) for _ in range(TIMES - 1)]
    for each in requests:
        each.take(MOST)
    return requests


def _taking(pixels: Pixels, count: int) -> Callable[[], Coroutine[Any, Any, int]]:
    async def decode() -> int:
        pixels.take(count)
        return count

    return decode


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_request_has_a_bound_of_its_own() -> None:
    pixels = _request(MediaBudget())
    pixels.take(60)
    with pytest.raises(ValueError, match="have 101 pixels together; accepted: fewer"):
        pixels.take(41)
    pixels.take(40)


def test_without_a_bound_nobody_waits() -> None:
    budget = MediaBudget()
    for _ in range(100):
        _request(budget, 0).take(10**9)
    assert budget.taken == 10**11


async def test_requests_wait_in_their_order_until_others_release() -> None:
    budget = MediaBudget()
    first, *_ = _full(budget)
    late, later, small = (_request(budget) for _ in range(3))
    waiting = [
        asyncio.create_task(each.retry(_taking(each, count)))
        for each, count in ((late, 100), (later, 100), (small, 1))
    ]
    await _turns()
    assert not any(each.done() for each in waiting)
    first.release()
    assert await waiting[0] == 100
    await _turns()
    assert [each.done() for each in waiting] == [True, False, False]
    late.release()
    assert await waiting[1] == 100
    later.close()
    assert await waiting[2] == 1
    assert budget.taken == MOST * (TIMES - 2) + 1


async def test_a_newcomer_does_not_overtake_who_waits() -> None:
    budget = MediaBudget()
    requests = _full(budget)
    requests[0].release()
    half, large, small = (_request(budget) for _ in range(3))
    half.take(50)
    waiting = asyncio.create_task(large.retry(_taking(large, 100)))
    await _turns()
    with pytest.raises(NoRoomError):
        small.take(1)
    half.release()
    assert await waiting == 100


async def test_requests_that_all_hold_some_and_want_more_all_complete() -> None:
    """Each would wait for the others' ends; the oldest has a share that nobody else may take."""
    budget = MediaBudget()
    requests = [_request(budget) for _ in range(2 * TIMES - 2)]
    for each in requests:
        each.take(MOST // 2)

    async def complete(pixels: Pixels) -> None:
        await pixels.retry(_taking(pixels, MOST // 2))
        assert budget.taken <= TIMES * MOST
        pixels.close()

    await asyncio.wait_for(asyncio.gather(*map(complete, reversed(requests))), HANG_SECONDS)
    assert budget.taken == 0


async def test_who_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "WAIT_SECONDS", 0.05)
    budget = MediaBudget()
    requests, late = _full(budget), _request(budget)
    with pytest.raises(UnavailableError, match="hold the memory for decoded images"):
        await late.retry(_taking(late, 1))
    assert isinstance(late.refusal, UnavailableError)
    for each in requests:
        each.close()
    assert budget.taken == 0
    _request(budget).take(MOST)


async def test_who_left_while_waiting_holds_nothing() -> None:
    budget = MediaBudget()
    requests, late = _full(budget), _request(budget)
    waiting = asyncio.create_task(late.retry(_taking(late, 50)))
    await _turns()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    late.close()
    for each in requests:
        each.close()
    assert budget.taken == 0


def test_a_decoder_that_comes_after_its_request_takes_nothing() -> None:
    budget = MediaBudget()
    pixels = _request(budget)
    pixels.take(1)
    pixels.close()
    with pytest.raises(ValueError, match="has finished"):
        pixels.take(1)
    assert budget.taken == 0


async def test_what_is_decoded_again_is_counted_once() -> None:
    budget = MediaBudget()
    requests, late = _full(budget), _request(budget)
    requests[0].release()
    late.take(60)
    other = _request(budget)
    other.take(40)
    tries = 0

    async def decode() -> None:
        nonlocal tries
        tries += 1
        taken = 0
        try:
            late.take(20)
            taken += 20
            late.take(20)
        except NoRoomError:
            late.put_back(taken)
            raise

    waiting = asyncio.create_task(late.retry(decode))
    await _turns()
    assert not waiting.done()
    other.close()
    await waiting
    assert tries > 1
    assert budget.taken == MOST * (TIMES - 2) + 100
