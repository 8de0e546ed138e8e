"""Bound what all requests of a worker hold decoded of images, clips and sounds.

A file of 20 KB can be half a gigabyte when it is decoded, and many requests bring one at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from lmi_backend.errors import LmiError, UnavailableError

T = TypeVar("T")

TIMES: Final = 8
"""How many times the pixels of one request all requests may hold together."""
WAIT_SECONDS: Final = 10.0
"""For room, before a request is refused."""
PIXEL_BYTES: Final = 3
"""Of decoded clips and sounds, that count as one pixel."""


class NoRoomError(Exception):
    """Other requests hold the memory that a decoder needs now; `Pixels.retry` waits for it."""


@dataclass(eq=False)
class _Waiting:
    owner: Pixels
    pixels: int
    loop: asyncio.AbstractEventLoop
    granted: asyncio.Future[None]


class MediaBudget:
    """Counts the pixels of all requests. Used from several threads.

    Requests get room in the order in which they wait. The oldest one that holds any may use the
    last share, which is as much as it can need: it always completes, so others get its room.
    """

    def __init__(self) -> None:
        self._taken: dict[Pixels, int] = {}
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()

    @property
    def taken(self) -> int:
        """Pixels that requests have taken."""
        return sum(self._taken.values())

    def take(self, owner: Pixels, pixels: int) -> bool:
        """Give pixels to a request; False if it must wait."""
        with self._lock:
            overtakes = bool(self._waiting) and owner not in self._taken
            return not overtakes and self._give(owner, pixels)

    async def wait(self, owner: Pixels, pixels: int) -> None:
        """Wait until pixels were given to a request.

        Raises:
            UnavailableError: other requests hold them for too long.
        """
        loop = asyncio.get_running_loop()
        waiting = _Waiting(owner, pixels, loop, loop.create_future())
        with self._lock:
            self._waiting.append(waiting)
            self._grant()
        try:
            await asyncio.wait_for(waiting.granted, WAIT_SECONDS)
        except asyncio.TimeoutError:
            problem = "other requests hold the memory for decoded images, clips and sounds"
            raise UnavailableError(problem) from None
        finally:
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                self._grant()

    def release(self, owner: Pixels) -> None:
        """Take back all that a request holds or waits for."""
        with self._lock:
            self._taken.pop(owner, None)
            self._waiting = [each for each in self._waiting if each.owner is not owner]
            self._grant()

    def _grant(self) -> None:
        is_blocked = False
        for each in list(self._waiting):
            if is_blocked and each.owner is not next(iter(self._taken), None):
                continue
            if not self._give(each.owner, each.pixels):
                is_blocked = True
                continue
            self._waiting.remove(each)
            each.loop.call_soon_threadsafe(_set, each.granted)

    def _give(self, owner: Pixels, pixels: int) -> bool:
        is_oldest = next(iter(self._taken), owner) is owner
        most = owner.most * (TIMES if is_oldest else TIMES - 1)
        if 0 < most < self.taken + pixels:
            return False
        self._taken[owner] = self._taken.get(owner, 0) + pixels
        return True


def _set(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)


class Pixels:
    """What one request may hold, and holds, of a budget. Used from several threads.

    Args:
        most: pixels of one request; 0 for no bound.
        budget: of all requests.
        accepted: the end of an error's text.
    """

    def __init__(self, most: int, budget: MediaBudget, accepted: Callable[[], str]) -> None:
        self.most, self._budget, self._accepted = most, budget, accepted
        self._left = most
        self._spare = self._missing = 0
        """Given by the budget and not used yet; and what it refused last."""
        self._lock = threading.Lock()
        self.refusal: LmiError | None = None
        """Why this request failed for want of room."""
        self._is_closed = False

    def take(self, pixels: int) -> None:
        """Take pixels.

        Raises:
            ValueError: the request has too many, or is finished.
            NoRoomError: all requests together have too many.
        """
        with self._lock:
            if self._is_closed:
                raise ValueError("the request has finished")
            if self.most > 0 > self._left - pixels:
                together = self.most - self._left + pixels
                problem = f"the images of a request have {together} pixels together"
                raise ValueError(f"{problem}; {self._accepted()}")
            needed = max(0, pixels - self._spare)
            if needed and not self._budget.take(self, needed):
                self._missing = needed
                raise NoRoomError
            self._spare = max(0, self._spare - pixels)
            self._left -= pixels

    def put_back(self, pixels: int) -> None:
        """Undo a `take`: what a decoder does again is not counted twice."""
        with self._lock:
            self._left += pixels
            self._spare += pixels

    async def retry(self, decode: Callable[[], Awaitable[T]]) -> T:
        """Return what a decoder makes; call it again when there is the room that it missed.

        Raises:
            UnavailableError: there was none in time.
        """
        while True:
            try:
                return await decode()
            except NoRoomError:
                await self._wait(self._missing)

    async def _wait(self, missing: int) -> None:
        try:
            await self._budget.wait(self, missing)
        except UnavailableError as error:
            self.refusal = error
            raise
        with self._lock:
            self._spare += missing

    def release(self) -> None:
        """Give all back to the other requests, once vLLM has what was made of it."""
        with self._lock:
            self._spare = 0
            self._budget.release(self)

    def close(self) -> None:
        """Release all, and take nothing more: a thread may decode after its request is finished."""
        with self._lock:
            self._is_closed = True
        self.release()
