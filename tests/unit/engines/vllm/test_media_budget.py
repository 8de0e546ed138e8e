"""What requests hold decoded is bounded, each and together; without room they wait."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from lmi_backend.engines.vllm import images, names
from lmi_backend.engines.vllm.images import TIMES, Pixels
from lmi_backend.errors import UnavailableError

MOST = 100


@pytest.fixture(autouse=True)
def envs(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """vLLM's variables; no request holds anything, before and after."""
    found = SimpleNamespace(VLLM_MAX_IMAGE_PIXELS=MOST)
    monkeypatch.setitem(vars(names), "envs", found)
    monkeypatch.setattr(images, "WAIT_SECONDS", 0.2)
    yield found
    assert Pixels.held_by_all == 0


def _full() -> list[Pixels]:
    """Return requests that hold all there is."""
    requests = [Pixels() for _ in range(TIMES)]
    for each in requests:
        each.take(MOST)
    return requests


def _close(requests: list[Pixels]) -> None:
    for each in requests:
        each.close()


def test_a_request_has_a_bound_of_its_own() -> None:
    pixels = Pixels()
    pixels.take(60)
    with pytest.raises(ValueError, match="have 101 pixels together; accepted: at most 100"):
        pixels.take(41)
    pixels.take(40)
    pixels.close()


def test_without_a_bound_nobody_is_refused(envs: SimpleNamespace) -> None:
    envs.VLLM_MAX_IMAGE_PIXELS = 0
    with images.charged() as pixels:
        pixels.take(10**12)
        assert Pixels().has_room


async def test_who_begins_waits_until_others_release() -> None:
    requests = _full()
    with images.charged():
        waiting = asyncio.create_task(images.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        requests[0].release()
        await waiting
        pixels = images.budget.get()
        assert pixels is not None
        pixels.take(MOST)
        assert not images.is_refused()
    _close(requests)


async def test_who_holds_some_goes_on() -> None:
    *requests, last = _full()
    token = images.budget.set(last)
    assert last.has_room
    await images.wait_for_room()
    images.release()
    assert Pixels.held_by_all == MOST * (TIMES - 1)
    images.budget.reset(token)
    _close(requests)


async def test_who_waits_too_long_is_refused_also_where_vllm_hides_that() -> None:
    requests = _full()

    async def decode() -> None:
        with images.charged() as pixels:
            await images.wait_for_room()
            with pytest.raises(UnavailableError):
                pixels.take(1)
            assert images.is_refused()

    with pytest.raises(UnavailableError, match="hold the memory for decoded images"):
        await decode()
    _close(requests)


def test_a_decoder_that_comes_after_its_request_takes_nothing() -> None:
    with images.charged() as pixels:
        pixels.take(1)
    with pytest.raises(ValueError, match="has finished"):
        pixels.take(1)
