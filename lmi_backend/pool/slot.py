"""One place for a worker in a pool, and what is known of the worker in it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.messages import Health
from lmi_backend.pool.rank_group import WorkerStats

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from lmi_backend.plan import EnginePlan
    from lmi_backend.pool.rank_group import Worker

# A worker that has served so long did not die of how it is configured: it is started again at once.
_FORGIVEN_SECONDS: Final = 600.0


@dataclass(eq=False)
class Slot:
    """Guarded by the lock of its pool."""

    index: int
    name: str
    is_extra: bool
    """Whether its worker is started and ended by load."""
    is_wanted: bool
    """Whether a worker is to run in it now."""
    worker: Worker | None = None
    reader: threading.Thread | None = None
    """Starts the worker and reads from it; None where none is wanted."""
    outstanding: int = 0
    assigned: int = 0
    deaths: int = 0
    failures: int = 0
    """Deaths and failed starts that are not forgiven."""
    wanted_since: float = 0.0
    ready_since: float = 0.0
    last_used: float = 0.0
    """When its last request ended."""
    is_dying: bool = False
    """Whether its worker said that its engine died; nothing else holds that worker any more."""
    is_retiring: bool = False
    """Whether its worker gets no more requests, because it is to be started anew."""
    trouble: str = "it is not started"
    is_given_up: bool = False
    stats: EngineStats = field(default_factory=EngineStats)

    def __str__(self) -> str:
        return f"worker {self.name}: {self.trouble or 'it cannot be reached'}"

    @property
    def is_open(self) -> bool:
        """Whether its worker takes requests."""
        return self.worker is not None and not self.is_retiring

    @property
    def is_read(self) -> bool:
        """Whether its thread runs; that of a worker that was ended may for a moment."""
        return self.reader is not None and self.reader.is_alive()

    @property
    def is_missed(self) -> bool:
        """Whether a worker should run in it and is not ready."""
        return self.is_wanted and self.worker is None

    def idle_seconds(self, now: float) -> float:
        """Return for how long its worker has had no request; 0 where it has one, or is not ready.

        Args:
            now: of the monotonic clock, as all times here.
        """
        if not self.is_open or self.outstanding:
            return 0.0
        return now - max(self.last_used, self.ready_since)

    def lose(self, how: str, *, is_closing: bool) -> bool:
        """Forget its worker, which has ended, and count that if it died.

        Returns whether it was meant to end.
        """
        is_planned = is_closing or self.is_retiring
        self.worker, self.stats, self.is_retiring = None, EngineStats(), False
        self.trouble = f"it {how} and is being restarted"
        if not is_planned:
            self._count_death()
        return is_planned

    def _count_death(self) -> None:
        self.deaths += 1
        has_proved = time.monotonic() - self.ready_since > _FORGIVEN_SECONDS
        self.failures = 1 if has_proved else self.failures + 1

    def worker_stats(self) -> WorkerStats:
        """Return the stats of its worker."""
        return WorkerStats(
            self.stats,
            self.assigned,
            self.deaths,
            self.worker is not None,
            self.trouble,
            is_wanted=self.is_wanted,
        )


def slots_of(plan: EnginePlan, model: str) -> list[Slot]:
    """Return a slot for each worker of a plan that there may be."""
    indices = range(plan.parallel.workers)
    extra = [index >= plan.min_workers for index in indices]
    return [Slot(index, f"{model}/{index}", extra[index], not extra[index]) for index in indices]


def least_busy(slots: Sequence[Slot]) -> Slot | None:
    """Return the slot of the worker with the least to do; None where none is ready.

    One that is behind with reading comes last: it may hang. Of two with as much to do, it is the
    one that runs always, and then the one that has had less: also a client that asks one after the
    other uses all of those.
    """
    # Read once: a worker may be lost meanwhile.
    ready = [(slot, worker) for slot in slots if slot.is_open and (worker := slot.worker)]
    order = [
        (
            (worker.unsent_bytes > 0, slot.outstanding, slot.is_extra, slot.assigned, slot.index),
            slot,
        )
        for slot, worker in ready
        if worker.takes_requests
    ]
    return min(order, default=(None, None))[1]


def health_of(slots: Sequence[Slot]) -> Health:
    """Tell whether a request would be taken, and what is wrong with each worker that is not."""
    return Health(
        is_ready=any(slot.worker is not None for slot in slots),
        is_given_up=all(slot.is_given_up for slot in slots if slot.is_wanted),
        trouble="; ".join(str(slot) for slot in slots if slot.is_missed),
    )
