"""Serve one model: requests in, answers out through their sinks.

A request takes a slot, goes to a worker, and comes back as deltas on a watcher thread of the
pool. That thread only stores them and marks the request ready; sender threads do the sending,
which waits on Triton. Whatever arrives while a request is being sent joins its next response,
so tokens share responses exactly when the send path is behind.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmi_backend.errors import (
    ConnectionLostError,
    EngineDeadError,
    EngineError,
    LmiError,
    RequestError,
    StoppingError,
    UnavailableError,
)
from lmi_backend.serving.session import Session, Sink
from lmi_backend.serving.watch import Watch
from lmi_backend.workers import messages as msg
from lmi_backend.workers.frames import encode
from lmi_backend.workers.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.engines.protocol import Capabilities, EngineStats
    from lmi_backend.generation import Delta, GenerateRequest
    from lmi_backend.plan import EnginePlan

_log = logging.getLogger(__name__)

# One send waits about 150 µs on the server with the GIL released; four keep two cores busy.
_SENDERS = 4


@dataclass(frozen=True)
class Snapshot:
    """Figures of a service since its start."""

    open: int
    ended: dict[str, int]
    """Requests by how they ended: a finish reason, or an error's code in lower case."""
    responses: int
    prompt_tokens: int
    generation_tokens: int
    workers: list[EngineStats]
    restarts: list[int]


class Service:
    """All of one model. `on_line` gets a worker's name and each line it prints."""

    def __init__(self, plan: EnginePlan, name: str, on_line: Callable[[str, str], None]) -> None:
        self._plan = plan
        self._pool = Pool(plan, name, self, on_line)
        # What runs, and what waits in the engines' own queues.
        self._places = plan.max_requests + plan.queue_size
        self._lock = threading.Lock()
        self._sessions: dict[int, Session] = {}
        self._numbers = itertools.count(1)
        self._ready: queue.SimpleQueue[Session | None] = queue.SimpleQueue()
        self._is_closing = False
        self._ended: dict[str, int] = {}
        self._responses = self._prompt_tokens = self._generation_tokens = 0
        self._watch = Watch(self._open_sessions, self._end_early)
        self._senders = [
            threading.Thread(target=self._send_ready, name=f"lmi-send-{i}", daemon=True)
            for i in range(_SENDERS)
        ]

    def start(self) -> Capabilities:
        """Start the workers and wait until they are ready. Raises what `Pool.start` raises."""
        capabilities = self._pool.start()
        for thread in (*self._senders, self._watch):
            thread.start()
        return capabilities

    def submit(self, request: GenerateRequest, sink: Sink) -> None:
        """Start a request; its answer, or its error, goes to the sink from another thread.

        Never blocks. Triton's queue cannot do the waiting: with any bound on it, its batcher looks
        at the next request only every 0.5 s (dynamic_batch_scheduler.cc, seen on 24.10).

        Raises:
            UnavailableError: as many requests wait as may, no worker is ready, or the server is
                stopping; the sink is not used.
        """
        if self._is_closing:
            raise StoppingError("the server is stopping")
        if len(self._sessions) >= self._places:
            running, waiting = self._plan.max_requests, self._plan.queue_size
            raise UnavailableError(
                f"all places are taken: {running} requests run (option.max_rolling_batch_size) "
                f"and {waiting} wait (job_queue_size)"
            )
        number = next(self._numbers)
        # Packed first: what cannot be packed must not leave a session behind.
        frame = encode([msg.Submit(number, request)])
        index, worker = self._pool.claim()
        deadline = time.monotonic() + self._plan.request_timeout
        session = Session(number, sink, index, deadline)
        with self._lock:
            self._sessions[number] = session
        # From here on the worker's death finds the session; before, the send fails.
        try:
            worker.send_frame(frame)
        except ConnectionLostError as error:
            with self._lock:
                self._set_error(session, EngineDeadError(f"worker {worker.name}: {error}"))
        self._watch.wake()

    def is_ready(self) -> bool:
        """Tell whether a request would be taken."""
        return not self._is_closing and self._pool.is_ready()

    def snapshot(self) -> Snapshot:
        """Return the figures now."""
        with self._lock:
            return Snapshot(
                open=len(self._sessions),
                ended=dict(self._ended),
                responses=self._responses,
                prompt_tokens=self._prompt_tokens,
                generation_tokens=self._generation_tokens,
                workers=self._pool.stats(),
                restarts=self._pool.restarts(),
            )

    def close(self) -> None:
        """Stop the workers. Triton calls this when no request is left; any that is, is dropped."""
        self._is_closing = True
        self._watch.stop()
        self._pool.close()
        for _ in self._senders:
            self._ready.put(None)

    def kill(self) -> None:
        """End the workers at once, without a word to anybody."""
        self._is_closing = True
        self._pool.kill()

    def on_messages(self, messages: list[msg.FromWorker]) -> None:
        """See `Listener`. One lock for all that one engine step brought."""
        with self._lock:
            for message in messages:
                if not isinstance(message, msg.Output | msg.Failure):
                    continue
                session = self._sessions.get(message.id)
                if session is None or session.error is not None:
                    # Cancelled or failed meanwhile.
                    continue
                if isinstance(message, msg.Output):
                    session.add(message.delta)
                    self._schedule(session)
                else:
                    self._set_error(session, _error(message))

    def on_death(self, index: int, error: EngineDeadError) -> None:
        """See `Listener`."""
        with self._lock:
            for session in self._sessions.values():
                if session.worker == index:
                    self._set_error(session, error)

    def _open_sessions(self) -> list[Session]:
        with self._lock:
            return [session for session in self._sessions.values() if session.error is None]

    def _end_early(self, session: Session, error: LmiError) -> None:
        """End a request whose client left or whose time is over."""
        with self._lock:
            if session.number not in self._sessions:
                return
            session.pending = None
            self._set_error(session, error)
        self._pool.abort(session.worker, [session.number])

    def _set_error(self, session: Session, error: LmiError) -> None:
        if session.error is None and not (session.pending and session.pending.finish_reason):
            session.error = error
            self._schedule(session)

    def _schedule(self, session: Session) -> None:
        if not session.is_scheduled:
            session.is_scheduled = True
            self._ready.put(session)

    def _send_ready(self) -> None:
        while (session := self._ready.get()) is not None:
            with self._lock:
                delta, error = session.take()
            try:
                outcome = _send(session.sink, delta, error)
            except Exception:  # noqa: BLE001  Triton raises its own; a sender must go on
                _log.exception("request %d: its answer cannot be sent", session.number)
                self._pool.abort(session.worker, [session.number])
                outcome = "unsendable"
                with contextlib.suppress(Exception):
                    session.sink.fail(EngineError("the answer cannot be sent"))
            self._after_send(session, delta, outcome)

    def _after_send(self, session: Session, delta: Delta | None, outcome: str) -> None:
        with self._lock:
            self._responses += 1
            if delta is not None:
                self._generation_tokens += delta.num_tokens
            if not outcome:
                session.is_scheduled = False
                if session.pending is not None or session.error is not None:
                    self._schedule(session)
                return
            del self._sessions[session.number]
            self._ended[outcome] = self._ended.get(outcome, 0) + 1
            self._prompt_tokens += delta.num_prompt_tokens if delta is not None else 0
        self._pool.done(session.worker)


def _send(sink: Sink, delta: Delta | None, error: LmiError | None) -> str:
    """Send what there is; return how the answer ended, or nothing if it goes on."""
    if delta is not None:
        sink.send(delta)
    if error is not None:
        sink.fail(error)
        return error.code.lower()
    return delta.finish_reason or "" if delta is not None else ""


def _error(failure: msg.Failure) -> LmiError:
    match failure.kind:
        case "request":
            return RequestError(failure.message, field=failure.field)
        case "dead":
            return EngineDeadError(failure.message)
        case "stopping":
            return StoppingError(failure.message)
        case _:
            return EngineError(failure.message)
