"""Wait for something that becomes so."""

import time
from collections.abc import Callable
from typing import Any


def wait_for(is_true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Poll until something holds. The bound only keeps what is broken from hanging the tests."""
    end, pause = time.monotonic() + seconds, 0.02
    while not is_true():
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(pause)
        # Most ask a server. What takes long is asked for less often, and is sooner so.
        pause = min(1.1 * pause, 0.2)
