"""How long to wait before something that failed is started again."""

from __future__ import annotations

import time
from typing import Final

_LONGEST: Final = 60.0
# What has gone well for so long starts afresh.
_FORGIVEN: Final = 600.0


class Backoff:
    """Pauses that grow with each failure: 0, 1, 2, 4 … 60 s."""

    def __init__(self) -> None:
        self._failures = 0
        self._last = 0.0

    def pause(self) -> float:
        """Count a failure, and return how many seconds to wait."""
        now = time.monotonic()
        if now - self._last > _FORGIVEN:
            self._failures = 0
        self._last = now
        self._failures += 1
        return min(_LONGEST, 2.0 ** (self._failures - 2)) if self._failures > 1 else 0.0
