"""When an engine is taken for dead because it makes no step."""

import pytest

from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.worker.heartbeats import HangDetector


def _look(watch: HangDetector, stats: EngineStats, seconds: range) -> None:
    for second in seconds:
        watch.check(stats, second)


def test_an_engine_that_makes_no_step_hangs() -> None:
    watch = HangDetector(10)
    _look(watch, EngineStats(running=3, steps=7), range(11))
    with pytest.raises(EngineDeadError, match=r"3 requests and made no step for 11 s"):
        _look(watch, EngineStats(running=3, steps=7), range(11, 12))


@pytest.mark.parametrize(
    "stats",
    [
        pytest.param(EngineStats(steps=7), id="it has nothing to do"),
        pytest.param(EngineStats(running=1), id="it does not count"),
    ],
)
def test_an_engine_that_need_not_step_does_not_hang(stats: EngineStats) -> None:
    _look(HangDetector(10), stats, range(100))


def test_a_step_starts_the_count_anew() -> None:
    watch = HangDetector(10)
    for step in range(5):
        _look(watch, EngineStats(running=1, steps=step), range(step * 9, step * 9 + 9))


def test_zero_is_never() -> None:
    _look(HangDetector(0), EngineStats(running=1, steps=1), range(1000))


def test_a_machine_that_stood_still_is_no_hang() -> None:
    watch = HangDetector(10)
    watch.check(EngineStats(running=1, steps=1), 0)
    watch.check(EngineStats(running=1, steps=1), 3600)


def test_the_first_steps_may_take_as_long_as_a_load() -> None:
    """They compile kernels, each for minutes: the first prompt, then the first token after it."""
    watch = HangDetector(10, first_seconds=100)
    _look(watch, EngineStats(running=1, steps=1), range(100))
    _look(watch, EngineStats(running=1, steps=2), range(100, 200))
    with pytest.raises(EngineDeadError, match=r"made no step for 101 s .option.model_loading"):
        _look(watch, EngineStats(running=1, steps=2), range(200, 202))


def test_later_steps_may_not() -> None:
    watch = HangDetector(10, first_seconds=100)
    with pytest.raises(EngineDeadError, match=r"made no step for 11 s .option.hang_timeout"):
        _look(watch, EngineStats(running=1, steps=9), range(12))


def test_a_copy_that_makes_no_step_hangs_whatever_the_others_do() -> None:
    watch = HangDetector(10)

    def look(seconds: range, *requests: int) -> None:
        for second in seconds:
            copies = ((7, requests[0]), (second, requests[1]))
            watch.check(EngineStats(running=sum(requests), steps=7 + second, copies=copies), second)

    look(range(100), 0, 3)
    look(range(100, 110), 2, 3)
    with pytest.raises(EngineDeadError, match="copy 0 of the engine has 2 requests and made no"):
        look(range(110, 113), 2, 3)
