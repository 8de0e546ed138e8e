"""Notice an engine that has requests and makes no step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.errors import EngineDeadError

if TYPE_CHECKING:
    from lmi_backend.ipc.engine import EngineStats

_LONGEST_LOOK: Final = 5.0


class HangDetector:
    """Watches the steps of one engine.

    Args:
        seconds: without a step, after which it hangs; 0: it never does.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._steps: int | None = None
        self._seen = self._still = 0.0

    def check(self, stats: EngineStats, now: float) -> None:
        """Look at the figures of `now`, in seconds of a monotonic clock.

        Raises:
            EngineDeadError: the engine hangs.
        """
        is_idle = stats.running + stats.waiting == 0
        if not self._seconds or stats.steps is None or is_idle or stats.steps != self._steps:
            self._steps, self._still = stats.steps, 0.0
        else:
            # It is looked at each second; when this process stood still, so did the engine.
            self._still += min(now - self._seen, _LONGEST_LOOK)
        self._seen = now
        if self._still > self._seconds:
            waited = f"{self._still:.0f} s (option.hang_timeout)"
            message = f"the engine has {stats.running} requests and made no step for {waited}"
            raise EngineDeadError(message)
