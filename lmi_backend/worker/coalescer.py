"""What a worker says, and when: all that is due in one turn of its loop travels in one frame."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING

from lmi_backend.generation import Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.ipc.frames import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.generation import Chunk


class _Request:
    """What has come for one request and is not said yet, by answer."""

    __slots__ = ("givers", "has_begun", "held")

    def __init__(self) -> None:
        self.held: dict[int, Chunk] = {}
        self.givers: set[Callable[[], None]] = set()
        """Where more is held; whom to ask for it."""
        self.has_begun = False

    def collect(self) -> None:
        """Hold what others hold."""
        givers, self.givers = self.givers, set()
        for give in givers:
            give()


class _Sink:
    """Takes the deltas of one prompt of a request. See `engines.protocol.Taker`."""

    __slots__ = ("_coalescer", "_first", "_number", "may_wait")

    def __init__(self, coalescer: Coalescer, number: int, first: int) -> None:
        self._coalescer, self._number, self._first = coalescer, number, first
        self.may_wait = partial(coalescer.may_wait, number)

    def take(self, delta: Delta) -> None:
        delta.index += self._first
        self._coalescer.add(self._number, delta)


class Coalescer:
    """Collects messages and the chunks of answers.

    The first chunk of a request and the last of each answer go at once. Others wait for those
    after them as long as the pace says, and for the chunks of all other requests: they leave
    together.

    Args:
        write: gets each frame.
        is_follower: whether to keep the answers; what a group of ranks generates is said by one.
    """

    def __init__(self, write: Callable[[bytes], None], *, is_follower: bool = False) -> None:
        self._write, self._is_follower = write, is_follower
        self._flush_policy = FlushPolicy()
        self._interval = 0.0
        self._requests: dict[int, _Request] = {}
        self._due: list[msg.FromWorker] = []
        # Not 0: that may be a moment ago, on the clock of a machine that has just started.
        self._ticked_at = -math.inf
        self._is_ticking = False

    def set_pace(self, pace: FlushPolicy) -> None:
        """Let chunks wait so long from now on; before, none waits."""
        self._flush_policy = pace

    def open(self, number: int) -> None:
        """Expect chunks of a request."""
        self._requests[number] = _Request()
        self._interval = self._flush_policy.interval(len(self._requests))

    def close(self, number: int) -> None:
        """Forget a request, and what is held of it."""
        self._requests.pop(number, None)
        self._interval = self._flush_policy.interval(len(self._requests))

    def sink(self, number: int, first: int) -> _Sink:
        """Return what takes the deltas of one prompt, whose answers count from `first`."""
        return _Sink(self, number, first)

    def may_wait(self, number: int, give: Callable[[], None]) -> bool:
        """Tell whether tokens may stay where they are; if so, `give` adds them when it is time."""
        request = self._requests.get(number)
        if request is None or not request.has_begun or not self._interval:
            return False
        request.givers.add(give)
        if not self._is_ticking:
            self._tick_soon()
        return True

    def add(self, number: int, chunk: Chunk) -> None:
        """Take a chunk of an answer, to say now or later; if the request was closed, never."""
        request = self._requests.get(number)
        if request is None:
            return
        held = request.held.get(chunk.index)
        if held is None:
            held = request.held[chunk.index] = chunk
        else:
            held.merge(chunk)  # type: ignore[arg-type]  # a request has one kind of chunks
        if chunk.is_last or not request.has_begun or (not self._interval and self._is_enough(held)):
            request.has_begun = True
            self._release(number, request)
        elif self._interval and not self._is_ticking:
            self._tick_soon()

    def fail(self, failure: msg.Failure) -> None:
        """Say that a request ended without an answer, after what there is of it."""
        if (request := self._requests.get(failure.id)) is not None:
            request.collect()
            self._release(failure.id, request)
            self.close(failure.id)
        if not self._is_follower:
            self.send(failure)

    def send(self, message: msg.FromWorker) -> None:
        """Say something in this turn of the loop."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self.flush)
        self._due.append(message)

    def flush(self) -> None:
        """Write what is due."""
        if self._due:
            self._write(encode(self._due))
            self._due.clear()

    def _tick_soon(self) -> None:
        self._is_ticking = True
        asyncio.get_running_loop().call_at(self._ticked_at + self._interval, self._tick)

    def _tick(self) -> None:
        self._ticked_at = asyncio.get_running_loop().time()
        for number, request in self._requests.items():
            if request.givers:
                request.collect()
            if any(map(self._is_enough, request.held.values())):
                self._release(number, request)
        # Not before: what is collected must not start a tick of its own.
        self._is_ticking = False

    def _is_enough(self, chunk: Chunk) -> bool:
        """Tell whether a chunk has its tokens; of some it is not known how many they have."""
        return not 0 < chunk.num_tokens < self._flush_policy.min_tokens

    def _release(self, number: int, request: _Request) -> None:
        if not self._is_follower:
            for chunk in request.held.values():
                kind = msg.Output if isinstance(chunk, Delta) else msg.HttpOutput
                self.send(kind(number, chunk))  # type: ignore[arg-type]
        request.held.clear()
