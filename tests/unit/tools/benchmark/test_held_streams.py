"""What many streams at once show, from the times of their events."""

import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
from benchmark.held_streams import CpuWatch, Pace, lateness, summed_up, window
from benchmark.measured import Answer

PACE = Pace(streams=2, tokens=40, token_seconds=0.25)


def _process(seconds: float = 1.0) -> Any:
    """Return a process that has used so much more CPU at each look."""
    used = itertools.count(step=seconds)
    return SimpleNamespace(cpu_times=lambda: SimpleNamespace(user=next(used), system=0.0))


def _answer(first: float, *, late: float = 0.0) -> Answer:
    moments = [first + place * PACE.token_seconds for place in range(PACE.tokens)]
    moments[20] += late
    return Answer(0.0, moments)


def test_a_late_token_is_late_by_what_it_is_late() -> None:
    delays = lateness(_answer(1.0, late=0.2).responses)
    assert max(delays) == pytest.approx(0.2, abs=0.01)
    assert sorted(delays)[-2] < 0.02


def test_an_engine_that_is_slower_than_it_was_told_is_not_late() -> None:
    assert max(lateness([place * 0.26 for place in range(40)])) == pytest.approx(0.0)


def test_few_events_tell_nothing() -> None:
    assert lateness([1.0, 2.0, 5.0]) == []


def test_what_counts_is_while_all_streams_run() -> None:
    early, tardy = _answer(1.0), _answer(3.0)
    assert window([early, tardy], PACE) == (3.0, early.responses[-1])
    with CpuWatch([("test", _process())]) as watch:
        pass
    held = summed_up([early, tardy], PACE, watch)
    # Two streams of four tokens a second.
    assert (held.asked, held.came) == (8.0, pytest.approx(8.0, rel=0.05))
    assert held.first_ms["p99"] == pytest.approx(2980)
    assert held.gap_ms["p99"] == pytest.approx(250)
    assert held.values()["late_ms"]["p99"] == pytest.approx(0.0, abs=0.1)


def test_tokens_that_share_events_are_counted_and_not_timed() -> None:
    shared = Answer(0.0, [1.0 + place * 0.5 for place in range(20)])
    with CpuWatch([("test", _process())]) as watch:
        pass
    held = summed_up([shared, shared], PACE, watch)
    assert held.came == pytest.approx(8.0, rel=0.1)
    assert held.late_ms == {}


def test_where_each_asks_again_all_of_it_counts() -> None:
    again = Pace(streams=1, tokens=40, token_seconds=0.25, rounds=2)
    answer = _answer(1.0)
    assert window([answer, answer], again) == (0.0, answer.responses[-1])


def test_cores_are_those_of_a_class_and_of_its_busiest() -> None:
    with CpuWatch([("a", _process(1)), ("a", _process(3)), ("b", _process(1))]) as watch:
        pass
    cores, busiest = (find(0.0, math.inf) for find in (watch.cores, watch.busiest))
    assert cores["a"] == pytest.approx(4 * cores["b"])
    assert busiest["a"] == pytest.approx(3 * cores["b"])
    assert cores["b"] > 0
