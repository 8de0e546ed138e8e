"""What a worker says of itself every second, and whether its engine lives.

An engine that has requests and makes no step hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import EngineStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.engines.protocol import Rank


_LONGEST_GAP: Final = 5.0
_FIRST_STEPS: Final = 8
"""Among which an engine compiles kernels for the shapes it meets, which may take minutes each."""


class HangDetector:
    """Looks at the steps of one engine.

    Args:
        seconds: without a step, after which the engine counts as hanging; 0: it never does.
        first_seconds: the same for its first steps, if that is more.
    """

    def __init__(self, seconds: float, first_seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._first_seconds = max(seconds, first_seconds)
        self._steps: dict[int, int | None] = {}
        """At the last look, of each copy."""
        self._stalled: dict[int, float] = {}
        """Seconds without a step, of each copy."""
        self._checked_at = 0.0

    def check(self, stats: EngineStats, now: float) -> None:
        """Look at the stats of `now`, in seconds of a monotonic clock.

        Raises:
            EngineDeadError: the engine hangs, or one of its copies.
        """
        # This is called each second. After a longer gap this process itself stood still, and the
        # engine may have, too.
        gap, self._checked_at = min(now - self._checked_at, _LONGEST_GAP), now
        if len(stats.copies) > 1:
            for number, (steps, requests) in enumerate(stats.copies):
                self._check(f"copy {number} of the engine", number, (steps, requests), gap)
        else:
            self._check("the engine", 0, (stats.steps, stats.running + stats.waiting), gap)

    def _check(self, name: str, number: int, seen: tuple[int | None, int], gap: float) -> None:
        steps, requests = seen
        if not self._seconds or steps is None or not requests or steps != self._steps.get(number):
            self._steps[number], self._stalled[number] = steps, 0.0
        else:
            self._stalled[number] += gap
        stalled = self._stalled[number]
        is_new = (steps or 0) <= _FIRST_STEPS and self._first_seconds > self._seconds
        if stalled > (self._first_seconds if is_new else self._seconds):
            option = "model_loading_timeout" if is_new else "hang_timeout"
            waited = f"{stalled:.0f} s (option.{option})"
            message = f"{name} has {requests} requests and made no step for {waited}"
            raise EngineDeadError(message)


_log = logging.getLogger(__name__)

_STATS_SECONDS: Final = 0.5
"""Each heartbeat wakes two processes, and what is made of the stats is looked at no more often."""


@dataclass
class Heartbeats:
    rank: Rank
    hang_detector: HangDetector
    send: Callable[[msg.Heartbeat], None]
    is_busy: Callable[[], bool]
    has_work: asyncio.Event
    die: Callable[[str], None]
    """Learns why the engine is dead."""
    _complaints: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Send the engine's stats once a second, and when they change, at most twice a second.

        An engine that has nothing to do is looked at once a second.
        """
        sent, sent_at = EngineStats(), -msg.HEARTBEAT_SECONDS
        while True:
            stats, now = self._stats(sent), time.monotonic()
            if stats != sent or now - sent_at >= msg.HEARTBEAT_SECONDS:
                self.send(msg.Heartbeat(stats))
                sent, sent_at = stats, now
                await self._check(stats)
            if self.is_busy() or stats.running or stats.waiting:
                await asyncio.sleep(_STATS_SECONDS)
            else:
                self.has_work.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.has_work.wait(), msg.HEARTBEAT_SECONDS)

    def _stats(self, latest: EngineStats) -> EngineStats:
        """Return the engine's stats, or those before where it cannot tell."""
        try:
            return self.rank.stats()
        except Exception as error:  # noqa: BLE001  without heartbeats all requests would end
            self._complain("the engine's stats cannot be had", error)
            return latest

    async def _check(self, stats: EngineStats) -> None:
        try:
            self.hang_detector.check(stats, time.monotonic())
            await self.rank.check_health()
        except EngineDeadError as error:
            _log.error("%s", error)
            self.die(str(error))
        except Exception as error:  # noqa: BLE001  as above
            self._complain("the engine's health cannot be had", error)

    def _complain(self, problem: str, error: Exception) -> None:
        """Log what goes wrong with each heartbeat, once."""
        if problem not in self._complaints:
            self._complaints.add(problem)
            _log.error("%s: %s: %s", problem, type(error).__name__, error)
