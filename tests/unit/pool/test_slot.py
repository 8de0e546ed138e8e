"""What a slot says of its worker after what has happened to it."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.messages import Failure, Heartbeat
from lmi_backend.pool.slot import Slot, SlotState, health_of
from tests.unit.pool.test_pool import Worker

NOW = 10_000.0
LOCK = threading.Lock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the slots; `now` sets it."""
    clock = SimpleNamespace(now=NOW, monotonic=lambda: clock.now)
    monkeypatch.setattr("lmi_backend.pool.slot.time", clock)
    return clock


def slot(index: int = 0, state: SlotState = SlotState.STARTING, **fields: Any) -> Slot:
    return Slot(index, f"m/{index}", is_extra=False, state=state, **fields)


def ready(index: int = 0, **fields: Any) -> Slot:
    made = slot(index)
    made.fill(Worker())  # type: ignore[arg-type]
    return replace(made, **fields)


@pytest.mark.parametrize("state", SlotState)
@pytest.mark.parametrize("has_worker", [True, False])
def test_it_is_open_with_a_worker_that_is_ready(state: SlotState, *, has_worker: bool) -> None:
    made = slot(state=state, worker=Worker() if has_worker else None)
    is_open = has_worker and state is SlotState.READY
    assert made.is_open is is_open
    assert made.is_wanted is (state is not SlotState.UNWANTED)
    assert made.is_missed is (state is not SlotState.UNWANTED and not has_worker)
    assert made.takes_requests is is_open
    assert made.retire() is (made.worker if is_open else None)
    assert made.state is (SlotState.RETIRING if is_open else state)


def test_it_is_filled_retired_and_started_again() -> None:
    made = slot(problem="it is not started")
    made.want()
    assert (made.state, made.wanted_since, made.problem != "") == (SlotState.STARTING, NOW, True)
    made.fill(Worker())  # type: ignore[arg-type]
    assert (made.state, made.ready_since, made.problem) == (SlotState.READY, NOW, "")
    made.retire()
    assert made.lose("exited", is_closing=False) is True
    assert (made.state, made.worker, made.deaths, made.failures) == (SlotState.STARTING, None, 0, 0)
    made.dismiss()
    assert (made.state, made.worker) == (SlotState.UNWANTED, None)
    assert made.lose("exited", is_closing=True) is True
    assert made.state is SlotState.UNWANTED


def test_each_death_counts_until_a_worker_has_served_for_long(clock: SimpleNamespace) -> None:
    made = slot()
    seen = []
    for life in (5, 5, 10, 600, 601, 5):
        made.fill(Worker())  # type: ignore[arg-type]
        clock.now += life
        assert made.lose("died", is_closing=False) is False
        seen.append((made.deaths, made.failures, made.fails_again, made.pause))
    assert seen == [
        (1, 1, False, 0.0),
        (2, 2, True, 1.0),
        # It lived long enough to show that starts succeed.
        (3, 3, False, 0.0),
        (4, 4, False, 0.0),
        # It did not die of how it is configured.
        (5, 1, False, 0.0),
        (6, 2, True, 1.0),
    ]
    made.want()
    assert (made.deaths, made.failures) == (6, 0)


@pytest.mark.parametrize(("failures", "pause"), [(6, 16.0), (7, 30.0), (10_000, 30.0)])
def test_pauses_grow_up_to_a_limit(failures: int, pause: float) -> None:
    assert slot(failures=failures).pause == pause


def test_who_is_taken_over_is_reported_while_it_is_there() -> None:
    made = ready(is_taken_over=True, has_spare=True, assigned=3)
    stats = made.worker_stats()
    assert (stats.is_ready, stats.is_adopted, stats.has_spare) == (True, True, True)
    assert (stats.assigned, stats.deaths, stats.is_wanted) == (3, 0, True)
    made.lose("died", is_closing=False)
    stats = made.worker_stats()
    assert (stats.is_ready, stats.is_adopted, stats.deaths) == (False, False, 1)
    assert ready().worker_stats().is_adopted is False


def test_a_message_of_death_closes_it_and_another_does_not() -> None:
    made = ready()
    stats = EngineStats(waiting=3)
    assert made.note(Heartbeat(stats), LOCK) == ""
    assert made.note(Failure(1, "request", "wrong"), LOCK) == ""
    assert (made.is_open, made.stats) == (True, stats)
    assert made.note(Failure(0, "dead", "CUDA error"), LOCK) == "CUDA error"
    assert (made.is_open, made.state) == (False, SlotState.DYING)
    # A worker that ends as planned stays one.
    retiring = ready(state=SlotState.RETIRING)
    retiring.note(Failure(0, "dead", "CUDA error"), LOCK)
    assert (retiring.worker, retiring.state) == (None, SlotState.RETIRING)


def test_seconds_without_a_request_are_counted_from_its_last_one() -> None:
    assert ready(ready_since=NOW - 9, last_used=NOW - 5).quiet_seconds(NOW) == 5
    assert ready(ready_since=NOW - 5, last_used=NOW - 9).quiet_seconds(NOW) == 5
    assert ready(ready_since=NOW - 9, outstanding=1).quiet_seconds(NOW) == 0
    assert slot(ready_since=NOW - 9).quiet_seconds(NOW) == 0


def test_it_says_whether_its_worker_reads() -> None:
    behind = ready(worker=SimpleNamespace(takes_requests=True, unsent_bytes=1))
    full = ready(worker=SimpleNamespace(takes_requests=False, unsent_bytes=1))
    assert [(each.takes_requests, each.is_behind) for each in (ready(), behind, full, slot())] == [
        (True, False),
        (True, True),
        (False, True),
        (False, False),
    ]


def test_a_model_is_given_up_when_each_worker_that_is_wanted_is() -> None:
    failed, unwanted = slot(1, failures=3), slot(2, SlotState.UNWANTED)
    failed.abandon()
    health = health_of([ready(), failed, unwanted])
    assert (health.is_ready, health.is_given_up) == (True, False)
    assert health.problem == str(failed)
    assert "3 times" in health.problem
    health = health_of([failed, unwanted])
    assert (health.is_ready, health.is_given_up) == (False, True)
