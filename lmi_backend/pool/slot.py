"""One place for a worker in a pool, and what is known of the worker in it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lmi_backend.ipc.engine import EngineStats
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
    trouble: str = "it is not started"
    is_given_up: bool = False
    stats: EngineStats = field(default_factory=EngineStats)

    def __str__(self) -> str:
        return f"worker {self.name}: {self.trouble or 'it cannot be reached'}"

    @property
    def is_missed(self) -> bool:
        """Whether a worker should run in it and is not ready."""
        return self.is_wanted and self.worker is None

    def idle_seconds(self, now: float) -> float:
        """Return for how long its worker has had no request; 0 where it has one, or is not ready.

        Args:
            now: of the monotonic clock, as all times here.
        """
        if self.worker is None or self.outstanding:
            return 0.0
        return now - max(self.last_used, self.ready_since)

    def count_death(self) -> None:
        """Count that its worker died."""
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

    Of two with as much to do, it is the one that runs always, and then the one that has had less:
    also a client that asks one after the other uses all of those.
    """
    ready = (slot for slot in slots if slot.worker is not None and not slot.worker.is_broken)
    return min(
        ready,
        key=lambda slot: (slot.outstanding, slot.is_extra, slot.assigned, slot.index),
        default=None,
    )
