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
