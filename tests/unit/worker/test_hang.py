"""When an engine is taken for dead because it makes no step."""

from collections.abc import Callable, Sequence

import pytest

from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.worker.heartbeats import HangDetector

Looks = Callable[[int], EngineStats]
"""What the engine tells at each second."""


def busy(steps: int) -> Looks:
    return lambda _: EngineStats(running=3, steps=steps)


def copies(idle: int) -> Looks:
    """Return what two copies tell, of which the second makes a step a second."""
    return lambda second: EngineStats(
        running=idle + 3, steps=7 + second, copies=((7, idle), (second, 3))
    )


@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        pytest.param(busy(7), range(11), id="not long enough"),
        pytest.param(lambda _: EngineStats(steps=7), range(100), id="it has nothing to do"),
        pytest.param(lambda _: EngineStats(running=1), range(100), id="it does not count"),
        pytest.param(lambda at: busy(at // 9)(at), range(45), id="it makes a step now and then"),
        pytest.param(busy(9), (0, 3600), id="the machine stood still"),
        pytest.param(copies(0), range(100), id="a copy has nothing to do"),
    ],
)
def test_an_engine_that_need_not_step_or_does_lives(looks: Looks, seconds: Sequence[int]) -> None:
    watch = HangDetector(10)
    for second in seconds:
        watch.check(looks(second), second)


def test_zero_is_never() -> None:
    watch = HangDetector(0)
    for second in range(1000):
        watch.check(busy(9)(second), second)


@pytest.mark.parametrize(
    ("watch", "looks", "last", "message"),
    [
        (HangDetector(10), busy(7), 11, r"the engine has 3 requests and made no step for 11 s"),
        # The first steps compile kernels, each for minutes.
        (HangDetector(10, 100), busy(1), 101, r"for 101 s .option.model_loading_timeout"),
        (HangDetector(10, 100), busy(9), 11, r"for 11 s .option.hang_timeout"),
        (HangDetector(10), copies(2), 11, r"copy 0 of the engine has 2 requests and made no"),
    ],
)
def test_an_engine_that_makes_no_step_hangs(
    watch: HangDetector, looks: Looks, last: int, message: str
) -> None:
    for second in range(last):
        watch.check(looks(second), second)
    with pytest.raises(EngineDeadError, match=message):
        watch.check(looks(last), last)
