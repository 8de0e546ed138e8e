"""Serve one model: requests in, answers out through their sinks.

A request goes to a worker, at once or, where all are busy, in its tenant's turn (`dispatch.py`).
Its deltas come on a reader thread of the pool, which stores them and marks the request ready;
sender threads send them, which waits on Triton, and what comes meanwhile joins the next response.
A sink that does not wait gets them from the reader. A dead worker's go on (`migration.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import queue
import threading
import time
from functools import partial

from lmi_backend.errors import (
    EngineDeadError,
    EngineError,
    LmiError,
    StoppedError,
    StoppingError,
)
from lmi_backend.generation import Chunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.ipc.failures import error_of
from lmi_backend.ipc.frames import encode
from lmi_backend.serving.cancellation import CancellationPoller
from lmi_backend.serving.dispatch import Dispatch
from lmi_backend.serving.events import EventPath, FromEngine
from lmi_backend.serving.every_worker import ask_every
from lmi_backend.serving.intake import Order, may_wait, take_in, take_order
from lmi_backend.serving.limits import Limits
from lmi_backend.serving.migration import renew
from lmi_backend.serving.request_state import DirectClient, RequestState, Sink, outcome_of, send
from lmi_backend.serving.stats import RequestStats, StatsSnapshot
from lmi_backend.serving.waiting import wait_until
from lmi_backend.serving.workers import Workers

_log = logging.getLogger(__name__)

# A send waits on the server with the GIL released; while one waits, the other makes a response.
_SENDERS = 2
_LAST_SECONDS = 5.0  # For the errors of those that are cut to be sent.


class Service:
    """The requests of one model, from their start to their end."""

    def __init__(self, workers: Workers, limits: Limits, stats: RequestStats | None = None) -> None:
        self._workers, self._limits = workers, limits
        self._stats = stats or RequestStats()
        self._lock = threading.Lock()
        self._states: dict[int, RequestState] = {}
        self._ids = itertools.count(1)
        self._ready: queue.SimpleQueue[RequestState | None] = queue.SimpleQueue()
        self._is_closing = False
        self._dispatch = Dispatch(workers, limits, self._lock, self._set_error, self._renew)
        self._events = EventPath(self._states, self._stats, self._dispatch.proved)
        ends = (self._end_early, self._dispatch.give_up)
        self._cancellation = CancellationPoller(self._open_states, *ends)
        self._senders = [
            threading.Thread(target=self._send_ready, name=f"lmi-send-{i}", daemon=True)
            for i in range(_SENDERS)
        ]

    def start(self) -> Capabilities:
        """Start the workers and wait until they are ready. Raises what their `start` raises."""
        capabilities = self._workers.start(self)
        for thread in (*self._senders, self._cancellation):
            thread.start()
        self._dispatch.start()
        return capabilities

    def submit(
        self, work: msg.Work, sink: Sink, seconds: float = math.inf, tenant: str = ""
    ) -> None:
        """Take a request; its answer, or its error, goes to the sink from another thread.

        It may wait and run for so many seconds, if the model's own limit is not less. Tenants whose
        requests wait take turns. Never blocks.

        Raises:
            UnavailableError: as many requests wait as may, no worker is ready, or the server is
                stopping; the sink is not used.
            RequestError: it asks for more than the limits allow.
        """
        if not isinstance(work, HttpRequest):
            self._limits.check_structures(work)
        self._start(*take_in(next(self._ids), work, sink, self._deadline(seconds), tenant))

    def adapt(self, name: str, folder: str, sink: Sink, *, preload: bool, pin: bool) -> None:
        """Load an adapter in every worker, or forget it where `folder` is empty; see `submit`."""
        order = msg.SetAdapter(0, name, folder, preload, pin)
        ask_every(self._workers.stats(), sink, partial(self._order, order))

    def manage(self, body: dict[str, object], sink: Sink) -> None:
        """Hand a management request on, where the workers are another model's; see `submit`."""
        self._order(msg.Manage(0, body), sink)

    def _order(self, order: Order, sink: Sink, only: int | None = None) -> None:
        self._start(*take_order(next(self._ids), order, sink, self._deadline(), only))

    def refused(self, error: LmiError) -> None:
        """Count a request that was answered with an error and never started."""
        with self._lock:
            self._stats.refused(error)

    def cancel(self, request_id: str) -> None:
        """End the running requests that a client calls so, with what there is of their answers."""
        for state in self._open_states():
            if state.sink.request_id == request_id:
                self._end_early(state, StoppedError("the client stopped the request"))

    def _deadline(self, seconds: float = math.inf) -> float:
        return time.monotonic() + min(seconds, self._limits.seconds)

    def _start(self, state: RequestState, message: msg.ToWorker | msg.Manage) -> None:
        if self._is_closing:
            raise StoppingError("the server is stopping")
        # Packed first: what cannot be packed must not leave a state behind.
        state.frame = encode([message])
        state.progress = self._dispatch.migration.progress(message, state)
        self._limits.check_size(len(state.frame))
        with self._lock:
            worker = self._dispatch.enter(state, may_wait=may_wait(message))
            self._states[state.id] = state
        if worker is not None:
            self._dispatch.send(state, worker)
        self._cancellation.wake()

    def drain(self, seconds: float) -> int:
        """Take no more requests, and wait until those that run have ended.

        Returns how many took longer than some seconds; they are ended with an error.
        """
        self._is_closing = True
        wait_until(lambda: not self._states, seconds)
        late = self._open_states()
        for state in late:
            self._end_early(state, StoppingError("the server is stopping and waits no longer"))
        wait_until(lambda: not self._states, _LAST_SECONDS)
        return len(late)

    def health(self) -> msg.Health:
        """Tell whether a request would be taken, and if not, why."""
        if self._is_closing:
            return msg.Health(is_ready=False, trouble="the server is stopping")
        return self._workers.health()

    def snapshot(self) -> StatsSnapshot:
        """Return the stats now."""
        with self._lock:
            num_open, queue, workers = len(self._states), self._dispatch, self._workers.stats()
            return self._stats.snapshot(num_open, workers, queue.num_waiting, queue.migration)

    def close(self) -> None:
        """Stop the workers. Triton calls this when no request is left; any that is, is dropped."""
        self._is_closing = True
        self._cancellation.stop()
        self._workers.close()
        self._dispatch.stop()
        for _ in self._senders:
            self._ready.put(None)

    def kill(self) -> None:
        """End the workers at once; clients get no answer."""
        self._is_closing = True
        self._workers.kill()

    def on_messages(self, messages: list[msg.FromWorker]) -> None:
        """Take what one engine step, or several, brought, under one lock."""
        clients: set[DirectClient] = set()
        with self._lock:
            others = self._events.pass_events(messages, clients)
            ready = [state for message in others if (state := self._hear(message, clients))]
        # Senders want the lock as soon as they have something.
        for state in ready:
            self._ready.put(state)
        for client in clients:
            client.flush()

    def _hear(self, message: FromEngine, clients: set[DirectClient]) -> RequestState | None:
        """Take a message; return the state if it must be scheduled for sending.

        What was stored directly leaves when `clients` are flushed.
        """
        state = self._states.get(message.id)
        if state is None or state.error is not None:
            # Cancelled or failed meanwhile.
            return None
        if isinstance(message, msg.Failure):
            self._set_error(state, error_of(message))
            return None
        if state.progress is not None and state.progress.add(message.chunk):
            self._dispatch.proved(state)
        if (direct := state.direct) is not None and not state.is_scheduled:
            chunks = state.pass_on(message.chunk)
            is_last = state.is_complete
            direct.store(chunks, is_last=is_last)
            clients.add(direct.client)
            self._note_sent(state, chunks, outcome_of(chunks[-1]) if is_last else "")
            return None
        state.add(message.chunk)
        if state.is_scheduled:
            return None
        state.is_scheduled = True
        return state

    def on_death(self, index: int, error: EngineDeadError) -> None:
        """Let all requests of a worker go on elsewhere, or end them with an error."""
        with self._lock:
            self._dispatch.on_death(self._of(index), error)

    def _of(self, index: int) -> list[RequestState]:
        return [state for state in self._states.values() if state.worker == index]

    def move_from(self, index: int, why: EngineDeadError, *, ends: bool = False) -> int:
        """Let a worker's requests go on elsewhere; return how many cannot, which it may end."""
        with self._lock:
            moved = self._dispatch.move(self._of(index), why)
            left = self._of(index)
        self._workers.abort(index, moved)
        for state in left if ends else ():
            self._end_early(state, why)
        return len(left)

    def on_ready(self) -> None:
        """Let requests start that waited for one more worker."""
        with self._lock:
            self._dispatch.release()

    def _renew(self, state: RequestState) -> None:
        """Give a request that is to go on elsewhere another id."""
        del self._states[state.id]
        renew(state, next(self._ids))
        self._states[state.id] = state

    def _open_states(self) -> list[RequestState]:
        with self._lock:
            return [state for state in self._states.values() if state.error is None]

    def _end_early(self, state: RequestState, error: LmiError) -> None:
        """End a request whose client left or whose time is over."""
        with self._lock:
            # One whose last chunk has come ends with it; without that chunk it never would.
            if state.id not in self._states or state.is_complete:
                return
            if not isinstance(error, StoppedError):
                state.drop()
            self._set_error(state, error)
        self._dispatch.abort(state)

    def _set_error(self, state: RequestState, error: LmiError) -> None:
        if state.error is None and not state.is_complete:
            state.error = error
            self._dispatch.withdraw(state)
            self._schedule(state)

    def _schedule(self, state: RequestState) -> None:
        if not state.is_scheduled:
            state.is_scheduled = True
            self._ready.put(state)

    def _send_ready(self) -> None:
        while (state := self._ready.get()) is not None:
            with self._lock:
                chunks, error = state.take()
                is_complete = state.is_complete
            try:
                outcome = send(state.sink, chunks, error, is_complete=is_complete)
            except Exception:  # noqa: BLE001  Triton raises its own; a sender must go on
                _log.exception("request %d: its answer cannot be sent", state.id)
                self._dispatch.abort(state)
                outcome = "unsendable"
                with contextlib.suppress(Exception):
                    state.sink.fail(EngineError("the answer cannot be sent"))
            self._after_send(state, chunks, outcome)

    def _after_send(self, state: RequestState, chunks: list[Chunk], outcome: str) -> None:
        with self._lock:
            self._note_sent(state, chunks, outcome)
            if not outcome:
                state.is_scheduled = False
                if state.has_pending or state.error is not None:
                    self._schedule(state)

    def _note_sent(self, state: RequestState, chunks: list[Chunk], outcome: str) -> None:
        """Count what was sent; forget a request that has ended."""
        self._stats.sent(state, chunks)
        if outcome:
            del self._states[state.id]
            self._stats.ended(state, outcome)
            self._dispatch.ended(state)
