"""Detect an engine that has requests and makes no step."""

from __future__ import annotations

from typing import Final

from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc.engine import EngineStats

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
        is_new = (stats.steps or 0) <= _FIRST_STEPS and self._first_seconds > self._seconds
        if self._stalled > (self._first_seconds if is_new else self._seconds):
            option = "model_loading_timeout" if is_new else "hang_timeout"
            waited = f"{self._stalled:.0f} s (option.{option})"
            message = f"the engine has {stats.running} requests and made no step for {waited}"
            raise EngineDeadError(message)
