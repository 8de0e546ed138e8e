"""Wait for a state. No test waits for a time, but where nothing follows that it could wait for."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

HANG_SECONDS = 240.0
"""Bound of every wait. It only stops a test that hangs: a busy machine must never reach it."""


def wait_for(is_true: Callable[[], T], seconds: float = HANG_SECONDS) -> T:
    """Poll until something holds; return it. Another bound is of what time alone would bring."""
    end, pause = time.monotonic() + seconds, 0.02
    while not (found := is_true()):
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(pause)
        # Most ask a server. What takes long is asked for less often, and is sooner so.
        pause = min(1.1 * pause, 0.2)
    return found


async def until(is_true: Callable[[], Any]) -> None:
    """Let the event loop run until something holds."""
    end = time.monotonic() + HANG_SECONDS
    while not is_true():
        assert time.monotonic() < end, f"not so after {HANG_SECONDS} s"
        await asyncio.sleep(0.01)


async def turns(count: int = 10) -> None:
    """Let all that is ready in the event loop run, and what becomes ready by it."""
    for _ in range(count):
        await asyncio.sleep(0)


def skip_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the clock of the running loop on, which is asyncio's own: its timers are due."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + seconds)


def nothing_more(seconds: float, why: str) -> None:
    """Give something that must not happen (`why`) time to happen; a slow machine only hides it."""
    logging.getLogger(__name__).info("for %s s %s", seconds, why)
    time.sleep(seconds)
