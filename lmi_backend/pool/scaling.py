"""Scale the workers of a pool between minWorkers and maxWorkers, by the requests that wait.

The rules are LMI's (WorkLoadManager.runJob, TemporaryBatchAggregator). Another worker is started
where more than twice batch_size requests wait. It is started too where one is refused because the
queue is full or no worker is ready. A worker above minWorkers without a request for max_idle_time
is stopped. Here one starts at a time: a model takes minutes to load, and the next request
that waits tries again.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.ipc.engine import EngineStats
from lmi_backend.pool.slot import Slot, SlotState
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.plan.engine_plan import Scaling

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 15.0


def slot_to_start(slots: Sequence[Slot]) -> Slot | None:
    """Return the slot for one more worker; None where all are used, or one is being started.

    A slot whose last worker is still being read, because it hangs, is used.
    """
    missed = (slot for slot in slots if slot.is_extra and slot.is_missed)
    if any(slot.state is not SlotState.ABANDONED for slot in missed):
        return None
    return next((slot for slot in slots if not slot.is_wanted and not slot.is_read), None)


def slot_to_end(slots: Sequence[Slot], scaling: Scaling, now: float) -> Slot | None:
    """Return the slot of the newest worker that is no longer needed, if there is one.

    None while fewer than minWorkers others are ready: one of those may have died.
    """
    num_ready = sum(slot.worker is not None for slot in slots)
    if scaling.min_workers is None or num_ready <= scaling.min_workers:
        return None
    unused = [
        slot for slot in slots if slot.is_extra and slot.quiet_seconds(now) >= scaling.max_idle_time
    ]
    return max(unused, key=lambda slot: slot.wanted_since, default=None)


class Scaler:
    def __init__(
        self,
        slots: Sequence[Slot],
        scaling: Scaling,
        lock: threading.Lock,
        start: Callable[[Slot], None],
    ) -> None:
        self._slots, self._scaling, self._lock = slots, scaling, lock
        self._start_in = start
        self._why = ""
        self._closing = threading.Event()
        self._thread = guarded_thread("lmi-scaling", self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Start and stop no more workers; wait for one that is being stopped, but not for ever."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(2 * _STOP_SECONDS)

    def note_queue(self, waiting: int, refused: str = "") -> None:
        if refused:
            self._why = f"a request was refused: {refused}"
        elif waiting > self._scaling.most_waiting:
            self._why = f"{waiting} requests wait"

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            reason, self._why = self._why, ""
            if reason:
                self._start_one(reason)
            self._end_one()

    def _start_one(self, reason: str) -> None:
        with self._lock:
            slot = slot_to_start(self._slots)
            if slot is None:
                return
            slot.want()
            number = sum(each.is_wanted for each in self._slots)
        most = len(self._slots)
        _log.info(
            "worker %s is added, now %d of maxWorkers %d: %s", slot.name, number, most, reason
        )
        try:
            self._start_in(slot)
        except BaseException:
            # Else it would be waited for, and no other be added.
            slot.dismiss()
            raise

    def _end_one(self) -> None:
        with self._lock:
            slot = slot_to_end(self._slots, self._scaling, time.monotonic())
            if slot is None or slot.worker is None:
                return
            worker = slot.worker
            slot.dismiss()
            number = sum(each.is_wanted for each in self._slots)
        seconds, least = self._scaling.max_idle_time, self._scaling.min_workers
        _log.info(
            "worker %s is stopped, now %d of minWorkers %d: no request for %d s (max_idle_time)",
            slot.name,
            number,
            least,
            seconds,
        )
        worker.stop(_STOP_SECONDS)
        if slot.reader is not None:
            # What it still has to say of this worker must not meet the next one of the slot.
            slot.reader.join(_STOP_SECONDS)
        slot.stats = EngineStats()
