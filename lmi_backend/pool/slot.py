"""One place for a worker in a pool, and what is known of the worker in it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.messages import Failure, Health, Heartbeat
from lmi_backend.pool.rank_group import WorkerStats

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from lmi_backend.ipc.messages import FromWorker
    from lmi_backend.plan import EnginePlan
    from lmi_backend.pool.rank_group import Worker

# A worker that has served so long did not die of how it is configured: it is started again at once.
_FORGIVEN_SECONDS: Final = 600.0
_LONGEST_PAUSE: Final = 30.0
_SHORT_LIFE: Final = 10.0
"""Seconds after which a worker has shown that starts succeed."""


class SlotState(Enum):
    UNWANTED = auto()
    """None is to run now."""
    STARTING = auto()
    """One is started, for the first time or again."""
    READY = auto()
    RETIRING = auto()
    """It gets no more requests, because it is to be started again."""
    DYING = auto()
    """Its engine died, and its process runs; nothing else holds that process any more."""
    ABANDONED = auto()
    """It failed too often, and is not started again."""


@dataclass(eq=False)
class Slot:
    """Guarded by the lock of its pool."""

    index: int
    name: str
    is_extra: bool
    """Whether the load starts and stops its worker."""
    state: SlotState
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
    last_life: float = 0.0
    """Seconds for which the worker that died last had been ready."""
    last_used: float = 0.0
    """Time at which its last request finished."""
    has_spare: bool = False
    is_taken_over: bool = False
    """Whether its worker is one that a dead stub has left."""
    problem: str = "it is not started"
    stats: EngineStats = field(default_factory=EngineStats)

    def __str__(self) -> str:
        return f"worker {self.name}: {self.problem or 'it cannot be reached'}"

    @property
    def is_wanted(self) -> bool:
        return self.state is not SlotState.UNWANTED

    @property
    def is_open(self) -> bool:
        return self.state is SlotState.READY and self.worker is not None

    @property
    def takes_requests(self) -> bool:
        # Read once: it may be lost meanwhile.
        worker = self.worker
        return self.is_open and worker is not None and worker.takes_requests

    @property
    def is_behind(self) -> bool:
        """Whether its worker has not read all that it was sent: it may hang."""
        worker = self.worker
        return worker is not None and worker.unsent_bytes > 0

    @property
    def is_read(self) -> bool:
        """Whether its thread runs; that of a worker that was stopped may for a moment."""
        return self.reader is not None and self.reader.is_alive()

    @property
    def is_missed(self) -> bool:
        """Whether a worker should run in it and is not ready."""
        return self.is_wanted and self.worker is None

    @property
    def fails_again(self) -> bool:
        """Whether its last worker died soon after its start, and not for the first time."""
        return self.failures > 1 and self.last_life < _SHORT_LIFE

    @property
    def pause(self) -> float:
        """Seconds before its next start."""
        if not self.fails_again:
            return 0.0
        return min(_LONGEST_PAUSE, 2.0 ** min(self.failures, 10) / 4)

    def want(self) -> None:
        self.state, self.wanted_since = SlotState.STARTING, time.monotonic()
        self.failures, self.problem = 0, "it is being started"

    def fill(self, worker: Worker) -> None:
        self.state, self.worker = SlotState.READY, worker
        self.problem, self.ready_since = "", time.monotonic()

    def retire(self) -> Worker | None:
        """Give its worker no more requests, and return it; None where none takes any."""
        if not self.is_open:
            return None
        self.state = SlotState.RETIRING
        return self.worker

    def dismiss(self) -> None:
        self.state, self.problem = SlotState.UNWANTED, "it is not needed now"
        self.worker = None

    def abandon(self) -> None:
        self.state = SlotState.ABANDONED
        self.problem = f"it failed {self.failures} times and is not restarted (retry_threshold)"

    def quiet_seconds(self, now: float) -> float:
        """Return how long its worker has had no request; 0 where it has one, or is not ready."""
        if not self.is_open or self.outstanding:
            return 0.0
        return now - max(self.last_used, self.ready_since)

    def note(self, message: FromWorker, lock: threading.Lock) -> str:
        """Take what a message says about the worker itself; return how its engine died, if so."""
        if isinstance(message, Heartbeat):
            self.stats = message.stats
        elif isinstance(message, Failure) and message.kind == "dead":
            # No more requests for it; its process ends soon.
            with lock:
                self.worker, self.problem = None, "its engine died and it is being restarted"
                if self.state is SlotState.READY:
                    self.state = SlotState.DYING
            return message.message
        return ""

    def lose(self, how: str, *, is_closing: bool) -> bool:
        """Forget its worker, which has exited, and count that if it died.

        Returns whether it was meant to end.
        """
        is_planned = is_closing or self.state is SlotState.RETIRING
        self.worker, self.stats = None, EngineStats()
        if self.is_wanted:
            self.state = SlotState.STARTING
        self.problem = f"it {how} and is being restarted"
        if not is_planned:
            self.deaths += 1
            self.last_life = time.monotonic() - self.ready_since
            self.failures = 1 if self.last_life > _FORGIVEN_SECONDS else self.failures + 1
        return is_planned

    def worker_stats(self) -> WorkerStats:
        return WorkerStats(
            self.stats,
            self.assigned,
            self.deaths,
            self.worker is not None,
            self.problem,
            has_spare=self.has_spare,
            is_wanted=self.is_wanted,
            is_adopted=self.is_taken_over and self.worker is not None,
        )


def slots_of(plan: EnginePlan, model: str) -> list[Slot]:
    indices = range(plan.parallel.workers)
    states = (SlotState.STARTING, SlotState.UNWANTED)
    extra = [index >= plan.min_workers for index in indices]
    return [
        Slot(index, f"{model}/{index}", extra[index], states[extra[index]]) for index in indices
    ]


def health_of(slots: Sequence[Slot]) -> Health:
    """Tell whether a request would be accepted, and what is wrong with each other worker."""
    return Health(
        is_ready=any(slot.worker is not None for slot in slots),
        is_given_up=all(slot.state is SlotState.ABANDONED for slot in slots if slot.is_wanted),
        problem="; ".join(str(slot) for slot in slots if slot.is_missed),
    )
