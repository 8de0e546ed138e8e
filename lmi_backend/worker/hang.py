"""Detect an engine that has requests and makes no step."""

from __future__ import annotations

from typing import Final

from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc.engine import EngineStats

_LONGEST_GAP: Final = 5.0


class HangDetector:
    """Looks at the steps of one engine.

    Args:
        seconds: without a step, after which the engine counts as hanging; 0: it never does.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._steps: int | None = None
        self._checked_at = self._stalled = 0.0

    def check(self, stats: EngineStats, now: float) -> None:
        """Look at the stats of `now`, in seconds of a monotonic clock.

        Raises:
            EngineDeadError: the engine hangs.
        """
        is_idle = stats.running + stats.waiting == 0
        if not self._seconds or stats.steps is None or is_idle or stats.steps != self._steps:
            self._steps, self._stalled = stats.steps, 0.0
        else:
            # This is called each second. After a longer gap this process itself stood still, and
            # the engine may have, too.
            self._stalled += min(now - self._checked_at, _LONGEST_GAP)
        self._checked_at = now
        if self._stalled > self._seconds:
            waited = f"{self._stalled:.0f} s (option.hang_timeout)"
            message = f"the engine has {stats.running} requests and made no step for {waited}"
            raise EngineDeadError(message)
