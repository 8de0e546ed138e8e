"""Wait for something that becomes so."""

import time
from collections.abc import Callable
from typing import Any


def wait_for(is_true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Poll until something holds. The bound only keeps what is broken from hanging the tests."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(0.02)
