"""A time until which something is waited for, and which moves often."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Deadline:
    """Calls something when a time is over. To move it costs no timer, but for an earlier time.

    Args:
        loop: the event loop.
        missed: called when the time is over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, missed: Callable[[], None]) -> None:
        self._loop, self._missed = loop, missed
        self._ends_at = self._looks_at = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> None:
        """Let the time be over in some seconds; what was said before counts no more."""
        self._ends_at = self._loop.time() + seconds
        if self._ends_at < self._looks_at:
            self._look_at(self._ends_at)

    def end(self) -> None:
        """Wait for nothing."""
        self._ends_at = math.inf

    def stop(self) -> None:
        """Wait for nothing, and forget what would be called."""
        self._ends_at = self._looks_at = math.inf
        if self._timer is not None:
            self._timer.cancel()

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = when
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._looks_at = math.inf
        if self._loop.time() >= self._ends_at:
            self._ends_at = math.inf
            self._missed()
        elif self._ends_at < math.inf:
            self._look_at(self._ends_at)
