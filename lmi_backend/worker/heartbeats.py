"""What a worker says of itself every second, and whether its engine lives."""

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
    from lmi_backend.worker.hang import HangDetector

_log = logging.getLogger(__name__)

_STATS_SECONDS: Final = 0.5
"""Each heartbeat wakes two processes, and what is made of the stats is looked at no more often."""


@dataclass
class Heartbeats:
    """Sends the stats of an engine, and looks at its health."""

    rank: Rank
    hang_detector: HangDetector
    send: Callable[[msg.Heartbeat], None]
    is_busy: Callable[[], bool]
    """Tells whether there are requests."""
    has_work: asyncio.Event
    """Is set with each new one."""
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

    def _stats(self, before: EngineStats) -> EngineStats:
        """Return the engine's stats, or those before where it cannot tell."""
        try:
            return self.rank.stats()
        except Exception as error:  # noqa: BLE001  without heartbeats all requests would end
            self._complain("the engine's stats cannot be had", error)
            return before

    async def _check(self, stats: EngineStats) -> None:
        """Stop the worker if its engine is dead or hangs."""
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
