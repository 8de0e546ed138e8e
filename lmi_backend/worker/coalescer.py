"""When a worker sends the chunks of its answers."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from lmi_backend.errors import EngineError, LmiError
from lmi_backend.generation import Chunk, Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.worker.outgoing import Outgoing

_log = logging.getLogger(__name__)


class _Request:
    """What was generated for one request and not sent yet."""

    __slots__ = ("deferred", "has_begun", "unsent")

    def __init__(self) -> None:
        self.unsent: dict[int, Chunk] = {}
        self.deferred: set[Callable[[], None]] = set()
        """Functions that hand over the tokens which the engine still has."""
        self.has_begun = False

    def collect(self) -> None:
        deferred, self.deferred = self.deferred, set()
        for flush in deferred:
            flush()


class PromptSink:
    __slots__ = ("_coalescer", "_first_index", "_request_id", "defer")

    def __init__(self, coalescer: Coalescer, request_id: int, first_index: int) -> None:
        self._coalescer, self._request_id = coalescer, request_id
        self._first_index = first_index
        self.defer = partial(coalescer.defer, request_id)

    def take(self, delta: Delta) -> None:
        delta.index += self._first_index
        self._coalescer.add(self._request_id, delta)


class AnswerSink:
    """Takes the chunks of the answer to an HTTP body.

    Args:
        drain: waits while the stub has much to read.
    """

    __slots__ = ("defer", "drain", "take")

    def __init__(
        self, coalescer: Coalescer, request_id: int, drain: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self.take = partial(coalescer.add, request_id)
        self.defer = partial(coalescer.defer, request_id)
        self.drain = drain


class Coalescer:
    """Holds the chunks of answers for a while, so that several share a message.

    The first chunk of a request and the last one of each answer are sent at once. The flush policy
    says how long others are held; then those of all requests are sent together. What one request
    raises then fails this one alone.

    Args:
        is_follower: whether to drop the answers. All ranks of a group generate them; the leader
            sends them.
    """

    def __init__(self, outgoing: Outgoing, *, is_follower: bool = False) -> None:
        self._outgoing, self._is_follower = outgoing, is_follower
        self._send = outgoing.send_chunk
        self._flush_policy = FlushPolicy()
        self._min_tokens = self._flush_policy.min_tokens
        self._interval = 0.0
        self._requests: dict[int, _Request] = {}
        self._due: dict[int, _Request] = {}
        """Those that have something for the next tick."""
        # Not 0: that may be a moment ago, on the clock of a machine that has just started.
        self._ticked_at = -math.inf
        self._is_ticking = False

    def set_flush_policy(self, policy: FlushPolicy) -> None:
        """Hold chunks as a policy says from now on; until then none is held."""
        self._flush_policy, self._min_tokens = policy, policy.min_tokens

    def open(self, request_id: int) -> None:
        self._requests[request_id] = _Request()
        self._renew_interval()

    def close(self, request_id: int) -> None:
        self._requests.pop(request_id, None)
        self._due.pop(request_id, None)
        self._renew_interval()

    def _renew_interval(self) -> None:
        self._interval = self._flush_policy.interval(len(self._requests))

    def sink(self, request_id: int, first_index: int) -> PromptSink:
        """Return the sink of one prompt; its answers are numbered from `first_index`."""
        return PromptSink(self, request_id, first_index)

    def defer(self, request_id: int, flush: Callable[[], None], num_tokens: int) -> bool:
        """Tell whether an engine may keep the new tokens of a request. See `DeltaSink.defer`."""
        if not self._interval and num_tokens >= self._min_tokens:
            return False
        request = self._requests.get(request_id)
        if request is None or not request.has_begun:
            return False
        request.deferred.add(flush)
        if self._interval:
            self._due[request_id] = request
            if not self._is_ticking:
                self._tick_soon()
        return True

    def add(self, request_id: int, chunk: Chunk) -> None:
        """Send a chunk of an answer, now or later; drop it if the request was closed."""
        request = self._requests.get(request_id)
        if request is None:
            return
        # A chunk of the middle leaves at once, and is most of what comes where nothing is held.
        if (
            not self._interval
            and request.has_begun
            and not request.unsent
            and not 0 < chunk.num_tokens < self._min_tokens
        ):
            if not self._is_follower:
                self._send(request_id, chunk)
            return
        unsent = request.unsent.get(chunk.index)
        if unsent is None:
            unsent = request.unsent[chunk.index] = chunk
        else:
            unsent.merge(chunk)  # type: ignore[arg-type]  # a request has one kind of chunks
        if (
            chunk.is_last
            or not request.has_begun
            or (not self._interval and self._has_min_tokens(unsent))
        ):
            request.has_begun = True
            self._send_chunks(request_id, request)
        elif self._interval:
            self._due[request_id] = request
            if not self._is_ticking:
                self._tick_soon()

    def fail(self, failure: msg.Failure) -> None:
        """Send what there is of a request, and that it finished without an answer."""
        if (request := self._requests.get(failure.id)) is not None:
            try:
                request.collect()
            except Exception:  # noqa: BLE001  it fails in any case, for its first reason
                _log.exception("request %s failed", failure.id)
            self._send_chunks(failure.id, request)
            self.close(failure.id)
        if not self._is_follower:
            self._outgoing.send(failure)

    def _tick_soon(self) -> None:
        self._is_ticking = True
        asyncio.get_running_loop().call_at(self._ticked_at + self._interval, self.tick)

    def tick(self) -> None:
        self._ticked_at = asyncio.get_running_loop().time()
        due, self._due = self._due, {}
        try:
            for request_id, request in due.items():
                try:
                    self._send_due(request_id, request)
                except Exception as error:  # noqa: BLE001  it must not stop the others' ticks
                    _log.exception("request %s failed", request_id)
                    self._refuse(request_id, error)
        finally:
            # Not before: what is collected must not start a tick of its own.
            self._is_ticking = False

    def _send_due(self, request_id: int, request: _Request) -> None:
        if request.deferred:
            request.collect()
        if any(map(self._has_min_tokens, request.unsent.values())):
            self._send_chunks(request_id, request)

    def _refuse(self, request_id: int, error: Exception) -> None:
        """Fail a request that raises where nobody else looks at it."""
        if not isinstance(error, LmiError):
            error = EngineError(f"{type(error).__name__}: {error}")
        if not self._is_follower:
            self._outgoing.refuse(request_id, error)

    def _has_min_tokens(self, chunk: Chunk) -> bool:
        """Tell whether a chunk has as many tokens as the policy wants.

        A chunk that counts no tokens always has: some do not know how many they hold.
        """
        return not 0 < chunk.num_tokens < self._min_tokens

    def _send_chunks(self, request_id: int, request: _Request) -> None:
        for chunk in request.unsent.values() if not self._is_follower else ():
            self._send(request_id, chunk)
        request.unsent.clear()
