"""When a worker is started for requests that wait, and when one that is idle is ended."""

import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.plan.engine_plan import Scaling
from lmi_backend.pool.scaling import Scaler, slot_to_end, slot_to_start
from lmi_backend.pool.slot import Slot, SlotState
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.unit.pool.test_pool import Worker

NOW = 1000.0
SCALING = Scaling(min_workers=1, max_idle_time=60)


def slot(index: int, *, is_ready: bool = True, idle: float = 0.0, **fields: Any) -> Slot:
    """Return a slot; the first one's worker always runs."""
    made = Slot(index, f"model/{index}", is_extra=index > 0, state=SlotState.STARTING)
    if is_ready:
        made.fill(Worker())  # type: ignore[arg-type]
    made.ready_since = 0.0
    made.last_used, made.wanted_since = NOW - idle, float(index)
    return replace(made, **fields)


def unwanted(index: int) -> Slot:
    return slot(index, is_ready=False, state=SlotState.UNWANTED)


def test_one_starts_at_a_time_and_as_many_as_there_may_be() -> None:
    spare = unwanted(2)
    assert slot_to_start([slot(0), slot(1), spare, unwanted(3)]) is spare
    assert slot_to_start([slot(0), slot(1, is_ready=False), spare]) is None
    assert slot_to_start([slot(0), slot(1)]) is None


def test_a_dead_worker_or_one_that_is_given_up_does_not_keep_another_from_starting() -> None:
    spare = unwanted(2)
    assert slot_to_start([slot(0, is_ready=False), slot(1), spare]) is spare
    assert (
        slot_to_start([slot(0), slot(1, is_ready=False, state=SlotState.ABANDONED), spare]) is spare
    )


def test_the_newest_idle_worker_above_the_least_is_ended() -> None:
    slots = [slot(0, idle=99), slot(1, idle=99), slot(2, idle=61), slot(3, idle=59)]
    assert slot_to_end(slots, SCALING, NOW) is slots[2]
    slots[1].wanted_since = 5.0
    assert slot_to_end(slots, SCALING, NOW) is slots[1]


@pytest.mark.parametrize(
    "slots",
    [
        [slot(0, idle=99), slot(1, idle=59)],
        [slot(0), slot(1, idle=99, outstanding=1)],
        [slot(0), slot(1, idle=99, ready_since=NOW - 1)],
        [slot(0, is_ready=False), slot(1, idle=99)],
        [slot(0), slot(1, is_ready=False, idle=99)],
    ],
    ids=["not long enough", "busy", "just ready", "the only one ready", "being started"],
)
def test_no_worker_is_ended_that_is_needed(slots: list[Slot]) -> None:
    assert slot_to_end(slots, SCALING, NOW) is None


def test_a_queue_starts_workers_and_idleness_ends_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    started: list[Slot] = []
    # The scaler reads the real clock, which starts with the machine: `NOW` may be to come.
    slots = [slot(0), replace(unwanted(1), last_used=0.0), unwanted(2)]
    scaler = Scaler(
        slots, Scaling(min_workers=1, max_idle_time=0), threading.Lock(), started.append
    )
    scaler.note_queue(2)
    scaler.start()
    scaler.note_queue(3)
    wait_for(lambda: started)
    assert (started, slots[1].is_wanted) == ([slots[1]], True)
    assert "worker model/1 is added, now 2 of maxWorkers 3: 3 requests wait" in caplog.text
    worker = Worker()
    slots[1].fill(worker)  # type: ignore[arg-type]
    wait_for(worker.is_over.is_set)
    scaler.stop()
    assert (slots[1].is_wanted, slots[1].worker) == (False, None)
    assert "worker model/1 is stopped, now 1 of minWorkers 1: no request for 0 s" in caplog.text


def test_one_that_cannot_be_started_keeps_no_other_from_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("lmi_backend.threads.PAUSE_SECONDS", 0.01)
    started: list[Slot] = []

    def start(slot: Slot) -> None:
        started.append(slot)
        if len(started) == 1:
            raise RuntimeError("can't start new thread")

    extra = unwanted(1)
    scaler = Scaler([slot(0), extra], SCALING, threading.Lock(), start)
    scaler.start()
    scaler.note_queue(0, "the queue is full")
    wait_for(lambda: "can't start new thread" in caplog.text)
    scaler.note_queue(0, "the queue is full")
    wait_for(lambda: len(started) == 2)
    scaler.stop()
    assert (started, extra.is_wanted) == ([extra] * 2, True)
    assert "a request was refused: the queue is full" in caplog.text


def test_a_slot_that_is_still_read_is_not_used() -> None:
    is_over = threading.Event()
    hangs = unwanted(1)
    hangs.reader = threading.Thread(target=is_over.wait)
    hangs.reader.start()
    assert slot_to_start([slot(0), hangs]) is None
    is_over.set()
    hangs.reader.join(HANG_SECONDS)
    assert slot_to_start([slot(0), hangs]) is hangs
