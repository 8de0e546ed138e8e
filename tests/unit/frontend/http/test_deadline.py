"""A deadline that moves ends once, at the time that was said last."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lmi_backend.frontend.http.protocol import Deadline


class Loop:
    """A loop whose time passes when it is told so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None], asyncio.Future[None]]] = []
        self.num_timers = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        self.num_timers += 1
        handle: asyncio.Future[None] = asyncio.Future()
        self.timers.append((when, callback, handle))
        return handle

    def pass_to(self, now: float) -> None:
        self.now = now
        due = [each for each in self.timers if each[0] <= now]
        self.timers = [each for each in self.timers if each[0] > now]
        for _, callback, handle in due:
            if not handle.cancelled():
                callback()


@pytest.fixture
async def loop() -> Loop:
    return Loop()


def _deadline(loop: Loop) -> tuple[Deadline, list[float]]:
    missed: list[float] = []
    return Deadline(loop, lambda: missed.append(loop.now)), missed  # type: ignore[arg-type]


async def test_it_is_missed_once_and_at_the_last_time_that_was_said(loop: Loop) -> None:
    deadline, missed = _deadline(loop)
    for now in range(5):
        loop.now = now
        deadline.begin(10)
    assert loop.num_timers == 1
    for now in (10, 13):
        loop.pass_to(now)
    assert missed == []
    for now in (14, 30):
        loop.pass_to(now)
    assert missed == [14]


async def test_an_earlier_time_counts_too(loop: Loop) -> None:
    deadline, missed = _deadline(loop)
    deadline.begin(60)
    deadline.begin(5)
    for now in (5, 60):
        loop.pass_to(now)
    assert missed == [5]


@pytest.mark.parametrize("end", ["end", "stop"])
async def test_what_is_waited_for_no_longer_is_not_missed(loop: Loop, end: str) -> None:
    deadline, missed = _deadline(loop)
    deadline.begin(5)
    getattr(deadline, end)()
    for now in (5, 100):
        loop.pass_to(now)
    assert missed == []
    deadline.begin(5)
    loop.pass_to(105)
    assert missed == [105]
