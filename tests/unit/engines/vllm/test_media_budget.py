"""What of the bounds of decoded media tests/contract/test_vllm_images.py does not show."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from lmi_backend.engines.vllm import images, names
from lmi_backend.engines.vllm.images import Pixels
from lmi_backend.errors import UnavailableError

MOST = 100


@pytest.fixture(autouse=True)
def envs(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """vLLM's variables; no request holds anything, before and after."""
    found = SimpleNamespace(VLLM_MAX_IMAGE_PIXELS=MOST)
    monkeypatch.setitem(vars(names), "envs", found)
    yield found
    assert Pixels.of_all.size == 0


def test_without_a_bound_nobody_is_refused(envs: SimpleNamespace) -> None:
    envs.VLLM_MAX_IMAGE_PIXELS = 0
    with images.charged() as pixels:
        pixels.take(10**12)
        assert Pixels().has_room


async def test_who_holds_some_goes_on() -> None:
    requests = [Pixels() for _ in range(6)]
    for each in requests:
        each.take(MOST)
    last = requests[-1]
    assert not Pixels().has_room
    token = images.budget.set(last)
    assert last.has_room
    await images.wait_for_room()
    images.release()
    assert Pixels.of_all.size == MOST * 5
    images.budget.reset(token)
    for each in requests:
        each.close()


def test_what_a_tenant_holds_refuses_no_newcomer() -> None:
    greedy = [Pixels("a") for _ in range(7)]
    for each in greedy[:-1]:
        each.take(MOST)
    with pytest.raises(UnavailableError):
        greedy[-1].take(MOST)
    newcomer = Pixels("b")
    assert newcomer.has_room
    newcomer.take(MOST)
    for each in (*greedy, newcomer):
        each.close()


def test_a_decoder_that_comes_after_its_request_takes_nothing() -> None:
    with images.charged() as pixels:
        pixels.take(1)
    with pytest.raises(ValueError, match="has finished"):
        pixels.take(1)
