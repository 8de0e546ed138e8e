"""Wait for what another thread does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_POLL_SECONDS: Final = 0.02


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so, for at most some seconds; return whether it is."""
    end = time.monotonic() + seconds
    while not (done := is_so()) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    return done
