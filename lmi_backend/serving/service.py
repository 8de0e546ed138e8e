"""Serve one model: requests in, answers out through their sinks.

A request goes to a worker at once, or in its tenant's turn if all workers are busy (`dispatch.py`).
A reader thread of the pool stores its deltas and marks the request ready. Sender threads send them.
A sender waits for Triton, and the deltas that arrive meanwhile join the next response. A sink that
never blocks gets its deltas from the reader thread. The requests of a dead worker resume in
another.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, get_args

from lmi_backend.clients.openai import RESETS
from lmi_backend.errors import (
    CancelledError,
    EngineDeadError,
    LmiError,
    StoppedError,
    StoppingError,
)
from lmi_backend.generation import Chunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.ipc.events import chunk_of
from lmi_backend.ipc.frames import encode_request
from lmi_backend.ipc.messages import error_of
from lmi_backend.serving.admission import Limits
from lmi_backend.serving.cancellation import LEFT, CancellationPoller
from lmi_backend.serving.dispatch import Dispatch
from lmi_backend.serving.new_requests import (
    NOBODY,
    Command,
    Sender,
    may_wait,
    new_command,
    new_request,
)
from lmi_backend.serving.request_state import (
    DirectClient,
    DirectSink,
    RequestState,
    Sink,
    fault_of,
    outcome_of,
    send,
)
from lmi_backend.serving.stats import RequestStats, StatsSnapshot
from lmi_backend.serving.workers import Workers
from lmi_backend.shares import FREE_BYTES, Shares
from lmi_backend.threads import QueueThreads, wait_until
from lmi_backend.tokenization import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from lmi_backend.pool.pool import Pool
    from lmi_backend.serving.spans import RequestTracer

    _AllEnd = Callable[[list[int], list[Chunk], LmiError | None], None]
    """Gets the numbers of the workers that have answered without an error, the last answer, and the
    first error."""


_log = logging.getLogger(__name__)

_FromEngine = msg.Output | msg.Failure
"""Messages about one request."""
_FROM_ENGINE: Final = frozenset(get_args(_FromEngine))
_LAST_SECONDS = 5.0  # For the errors of those that are cut to be sent.
# A send waits on the server with the GIL released; while one waits, the other makes a response.
_SENDERS: Final = 2


@dataclass
class _EndSink:
    """Calls `end` with the last chunks of an answer, or with its error."""

    end: Callable[[list[Chunk], LmiError | None], None]
    request_id = ""

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        if is_last:
            self.end(chunks, None)

    def fail(self, error: LmiError) -> None:
        self.end([], error)

    def is_cancelled(self) -> bool:
        return False


class Service:
    """The requests of one model, from their start to their end."""

    def __init__(
        self,
        workers: Workers,
        limits: Limits,
        stats: RequestStats | None = None,
        tracer: RequestTracer | None = None,
    ) -> None:
        self.workers, self._limits, self._tracer = workers, limits, tracer
        self._stats = stats or RequestStats()
        self._lock = threading.Lock()
        self.states: dict[int, RequestState] = {}
        self._ids = itertools.count(1)
        self.large: Shares[int] = Shares()
        """Large requests that are not finished, by the number of their arrival."""
        self._is_closing = False
        ends = self.set_error, self._renew
        self.dispatch = Dispatch(workers, limits, self._lock, self._stats, *ends)
        ends = (self._end_early, self.dispatch.expire)
        self.cancellation = CancellationPoller(self.open_states, *ends)
        names = (f"lmi-send-{number}" for number in range(_SENDERS))
        self.senders: QueueThreads[RequestState] = QueueThreads(self._send, *names)
        """They send answers whose sinks may wait on a server, of requests marked as scheduled."""

    def start(self) -> Capabilities:
        """Start the workers and wait until they are ready. Raises what their `start` raises."""
        capabilities = self.workers.start(self)
        for threads in (self.senders, self.cancellation, self.dispatch.released):
            threads.start()
        return capabilities

    def submit(
        self,
        work: msg.Work,
        sink: Sink,
        sender: Sender = NOBODY,
        seconds: float = math.inf,
    ) -> None:
        """Accept a request; its answer, or its error, goes to the sink from another thread.

        The request may wait and run for `seconds`, or for the model's own limit if that is less.
        Tenants whose requests wait take turns. Requests of one session go to one worker, unless
        it has clearly more to do than another. Never blocks.

        Raises:
            UnavailableError: the queue is full, no worker is ready, the answer would be late, or
                the server is stopping; the sink is not used.
            RequestError: the request exceeds a limit.
        """
        if isinstance(work, HttpRequest) and work.path in RESETS:
            self._command_all(msg.SubmitHttp(0, work), partial(_answer, sink))
            with self._lock:
                self.dispatch.choice.forget()
            return
        span, has_end = None, seconds != math.inf
        if self._tracer is not None:
            work, span = self._tracer.begin(work, sink.request_id)
        try:
            state, message = new_request(
                next(self._ids),
                work,
                sink,
                self._deadline(seconds),
                sender,
                self._limits.requests,
            )
            state.span = span
            # Most have none, and each call counts.
            if sender.promise != NOBODY.promise or self.dispatch.promises.is_used or has_end:
                state.promise(*sender.promise, self._limits.requests, seconds)
            self._start(state, message)
        except LmiError as error:
            if span is not None:
                span.end(error.outcome, error)
            raise

    def adapt(
        self, order: msg.SetAdapter, only: Collection[int] | None = None
    ) -> tuple[list[int], LmiError | None]:
        """Have every worker, or some, change an adapter, and wait for them; nothing cancels it.

        Returns the numbers of the workers that have done it, and the first error.
        """
        ends: SimpleQueue[tuple[list[int], LmiError | None]] = SimpleQueue()
        self._command_all(order, lambda took, _, error: ends.put((took, error)), only)
        return ends.get()

    def manage(self, body: dict[str, object], sink: Sink) -> None:
        """Hand a management request on, where the workers are another model's; see `submit`."""
        self._command(msg.Manage(0, body), sink)

    def _command_all(
        self, command: Command, end: _AllEnd, only: Collection[int] | None = None
    ) -> None:
        """Send a command to some workers, to all that are ready, or to any; then call `end`."""
        ready = [index for index, each in enumerate(self.workers.stats()) if each.is_ready]
        left: list[int | None] = [*(ready if only is None else only)] or [None]
        errors: list[LmiError] = []
        took: list[int] = []
        lock = threading.Lock()

        def end_one(index: int | None, chunks: list[Chunk], error: LmiError | None) -> None:
            # Senders of two may give theirs at once.
            with lock:
                left.remove(index)
                if error is not None:
                    errors.append(error)
                elif index is not None:
                    took.append(index)
                if left:
                    return
            end(took, chunks, next(iter(errors), None))

        for index in tuple(left):
            one = _EndSink(partial(end_one, index))
            try:
                self._command(command, one, index)
            except LmiError as error:
                one.fail(error)

    def _command(self, command: Command, sink: Sink, only: int | None = None) -> None:
        self._start(*new_command(next(self._ids), command, sink, self._deadline(), only))

    def refused(self, error: LmiError) -> None:
        """Count a request that was answered with an error and never started."""
        with self._lock:
            self._stats.refused(error)

    def cancel(self, request_id: str) -> None:
        """End the running requests that a client calls so, with what there is of their answers."""
        for state in self.open_states():
            # One key's client does not end the request of another's.
            is_direct = isinstance(state.sink, DirectSink)
            if state.sink.request_id == request_id and not is_direct:
                self._end_early(state, StoppedError("the client stopped the request"))

    def leave(self, sinks: Iterable[DirectSink]) -> None:
        """End at once the requests of sinks whose client wants no more of them."""
        ended: defaultdict[int, list[int]] = defaultdict(list)
        with self._lock:
            for state in (sink.state for sink in sinks):
                if state is None or not self._end(state, CancelledError(LEFT)):
                    continue
                if state.worker is not None:
                    ended[state.worker].append(state.id)
        for index, numbers in ended.items():
            self.workers.abort(index, numbers)

    def _deadline(self, seconds: float = math.inf) -> float:
        return time.monotonic() + min(seconds, self._limits.requests.request_timeout)

    def _start(self, state: RequestState, message: msg.ToWorker | msg.Manage) -> None:
        if self._is_closing:
            raise StoppingError("the server is stopping")
        # Packed first: what cannot be packed must not leave a state behind.
        state.frame = encode_request(message)
        hands_on = state.direct is not None and state.direct.keeps_ids
        resumption = self.dispatch.resumption
        state.progress = resumption.progress(message, state.width, hands_on=hands_on)
        state.size = sum(map(len, state.frame))
        with self._lock:
            self._limits.check_size(state.size, self.large, state.tenant)
            self.states[state.id] = state
            try:
                worker = self.dispatch.enter(state, may_wait=may_wait(message))
            except BaseException:
                del self.states[state.id]
                self.dispatch.withdraw(state)
                self.dispatch.ended(state)
                raise
            if state.size > FREE_BYTES:
                self.large.add(state.arrival, state.size - FREE_BYTES, state.tenant)
            if state.direct is not None:
                state.direct.state = state
        if worker is not None:
            self.dispatch.send(state, worker)
        self.cancellation.wake()

    def drain(self, seconds: float) -> int:
        """Refuse new requests, and wait for the running ones to finish.

        Returns how many took longer than `seconds`; they fail with an error.
        """
        self._is_closing = True
        wait_until(lambda: not self.states, seconds)
        late = self.open_states()
        for state in late:
            self._end_early(state, StoppingError("the server is stopping and waits no longer"))
        wait_until(lambda: not self.states, _LAST_SECONDS)
        return len(late)

    def health(self) -> msg.Health:
        if self._is_closing:
            return msg.Health(is_ready=False, problem="the server is stopping")
        return self.workers.health()

    def snapshot(self) -> StatsSnapshot:
        with self._lock:
            workers, num_waiting = self.workers.stats(), self.dispatch.admission.waiting
            now = self._stats.snapshot(len(self.states), workers, num_waiting)
            resumption, choice = self.dispatch.resumption, self.dispatch.choice
            now.moved, now.repeated_tokens = resumption.num_resumed, resumption.num_repeated
            now.held, now.given_up = resumption.num_queued, resumption.num_expired
            now.prefix_hits, now.prefix_lost = choice.num_hits, choice.num_lost
            now.prefix_moves = choice.num_moves
            return now

    def close(self) -> None:
        """Stop the workers. Triton calls this when no request is left; any that is, is dropped."""
        self._is_closing = True
        self.cancellation.stop()
        self.workers.close()
        self.dispatch.released.stop()
        self.senders.stop()
        if self._tracer is not None:
            self._tracer.close()

    def on_messages(self, messages: list[msg.FromWorker]) -> None:
        """Take what one engine step, or several, brought, under one lock."""
        clients: set[DirectClient] = set()
        with self._lock:
            others = self._pass_events(messages, clients)
            ready = [state for message in others if (state := self._hear(message, clients))]
        # Senders want the lock as soon as they have something.
        for state in ready:
            self.senders.put(state)
        for client in clients:
            try:
                client.flush()
            except Exception:  # noqa: BLE001  the others get theirs
                _log.exception("a client of the endpoint cannot be sent anything")
                client.close()

    def _pass_events(
        self, messages: Iterable[msg.FromWorker], clients: set[DirectClient]
    ) -> Iterator[_FromEngine]:
        """Hand on the events that can be, note whom to flush, and yield the rest in its order.

        An event of a stream takes the shortest way: it passes without a message of its own.
        """
        for message in messages:
            if isinstance(message, msg.Events):
                yield from self._pass(message, clients)
            elif message.__class__ in _FROM_ENGINE:
                yield message  # type: ignore[misc]

    def _hear(self, message: _FromEngine, clients: set[DirectClient]) -> RequestState | None:
        """Take a message; return the state if it must be scheduled for sending.

        What was stored directly leaves when `clients` are flushed.
        """
        state = self.states.get(message.id)
        if state is None or state.error is not None:
            # Cancelled or failed meanwhile.
            return None
        try:
            return self._take(state, message, clients)
        except Exception:  # noqa: BLE001  what came of others is taken
            self._break(state)
            return None

    def _take(
        self, state: RequestState, message: _FromEngine, clients: set[DirectClient]
    ) -> RequestState | None:
        if isinstance(message, msg.Failure):
            self.set_error(state, error_of(message))
            return None
        is_first = state.progress is not None and state.progress.add(message.chunk)
        if is_first or state.expectation is not None:
            self.dispatch.acknowledged(state, message.chunk)
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

    def _pass(self, events: msg.Events, clients: set[DirectClient]) -> Iterator[msg.Output]:
        now, kind = time.monotonic(), events.__class__
        passed: defaultdict[DirectClient, msg.Events] = defaultdict(lambda: kind([], [], []))
        gaps: defaultdict[tuple[float, int], int] = defaultdict(int)
        for number, data, ids in zip(events.ids, events.data, events.token_ids, strict=True):
            if (state := self.states.get(number)) is None:
                # Cancelled or failed meanwhile.
                continue
            try:
                if (sink := state.event_sink) is None:
                    yield msg.Output(number, chunk_of(kind, data, ids))
                    continue
                if state.progress is not None and state.progress.pass_event(data, ids):
                    self.dispatch.acknowledged(state, None)
                own = passed[sink.client]
                own.ids.append(sink.number)
                own.data.append(data)
                own.token_ids.append(ids)
                num_tokens = len(ids) // ID_BYTES
                gaps[state.sent_at, num_tokens] += 1
                state.sent_at = now
                state.num_sent += 1
                state.num_tokens += num_tokens
            except Exception:  # noqa: BLE001  the others' events are passed on
                self._break(state)
        self._stats.passed(gaps, now)
        # After what was yielded: of no request did an event come before its chunk here.
        for client, own in passed.items():
            clients.add(client)
            try:
                client.store([own])
            except Exception:  # noqa: BLE001  other clients get theirs
                self._break_all(client, own)

    def _break_all(self, client: DirectClient, events: msg.Events) -> None:
        lost = set(events.ids)
        for state in list(self.states.values()):
            sink = state.direct
            if sink is not None and sink.client is client and sink.number in lost:
                self._break(state)

    def on_death(self, index: int, error: EngineDeadError) -> None:
        with self._lock:
            self.dispatch.on_death(self._of(index), error)

    def _of(self, index: int) -> list[RequestState]:
        return [state for state in self.states.values() if state.worker == index]

    def move_from(self, index: int, reason: EngineDeadError, *, ends: bool = False) -> int:
        """Let a worker's requests resume elsewhere; return how many cannot, which it may end."""
        with self._lock:
            moved = self.dispatch.move(self._of(index), reason)
            left = self._of(index)
        self.workers.abort(index, moved)
        for state in left if ends else ():
            self._end_early(state, reason)
        return len(left)

    def on_ready(self) -> None:
        """Let requests start that waited for one more worker."""
        with self._lock:
            self.dispatch.release()

    def _renew(self, state: RequestState) -> None:
        """Give a request that resumes another id, and pack it for its next worker."""
        del self.states[state.id]
        state.id = next(self._ids)
        self.states[state.id] = state
        if state.progress is not None:
            state.frame = encode_request(state.progress.message(state.id))

    def open_states(self) -> list[RequestState]:
        with self._lock:
            return [state for state in self.states.values() if state.error is None]

    def _end_early(self, state: RequestState, error: LmiError) -> None:
        """End a request whose client left or whose time is over."""
        with self._lock:
            has_ended = self._end(state, error)
        if has_ended:
            self.dispatch.abort(state)

    def _end(self, state: RequestState, error: LmiError) -> bool:
        """End a request with the lock held; return whether that was for it to do."""
        # One whose last chunk has come ends with it; without that chunk it never would.
        if state.id not in self.states or state.is_complete:
            return False
        if not isinstance(error, StoppedError):
            state.drop()
        self.set_error(state, error)
        return True

    def set_error(self, state: RequestState, error: LmiError) -> None:
        if state.error is None and not state.is_complete:
            state.error = error
            self.dispatch.withdraw(state)
            self._schedule(state)

    def _break(self, state: RequestState) -> None:
        """End a request in the except block of what came of it and could not be handed on."""
        state.drop()
        state.error = fault_of(state, "what came of the answer cannot be handed on")
        self.dispatch.abort(state)
        self._schedule(state)

    def _schedule(self, state: RequestState) -> None:
        """Let a request be sent, if it is not about to be; called with the lock held."""
        if not state.is_scheduled:
            state.is_scheduled = True
            self.senders.put(state)

    def _send(self, state: RequestState) -> None:
        chunks: list[Chunk] = []
        try:
            with self._lock:
                chunks, error = state.take()
                is_complete = state.is_complete
            outcome = send(state.sink, chunks, error, is_complete=is_complete)
        except Exception:  # noqa: BLE001  Triton raises its own; a sender must continue
            outcome = self._end_unsendable(state)
        with self._lock:
            self._note_sent(state, chunks, outcome)
            if not outcome:
                state.is_scheduled = False
                if state.has_pending or state.error is not None:
                    self._schedule(state)

    def _end_unsendable(self, state: RequestState) -> str:
        error = fault_of(state, "the answer cannot be sent")
        with self._lock:
            # Nothing else may start it again, or send it.
            state.error = error
        self.dispatch.abort(state)
        with contextlib.suppress(Exception):
            state.sink.fail(error)
        return "unsendable"

    def _note_sent(self, state: RequestState, chunks: list[Chunk], outcome: str) -> None:
        """Count what was sent; forget a finished request."""
        has_ended = bool(outcome) and self.states.pop(state.id, None) is not None
        try:
            self._stats.sent(state, chunks)
            if has_ended:
                self._stats.ended(state, outcome)
                state.end_span(outcome)
        except Exception:  # noqa: BLE001  a wrong count must not keep the answer
            fault_of(state, "what was sent cannot be counted")
        if has_ended:
            if state.size > FREE_BYTES:
                self.large.forget(state.arrival)
            self.dispatch.ended(state)


def _answer(sink: Sink, _: list[int], chunks: list[Chunk], error: LmiError | None) -> None:
    if error is not None:
        sink.fail(error)
    else:
        sink.send(chunks, is_last=True)


def renew_worker(
    service: Service, pool: Pool, load_seconds: float, index: int, seconds: float
) -> msg.Done:
    """Let the requests of a worker resume elsewhere, and restart the worker; blocks.

    Args:
        load_seconds: time that a worker may take to be ready.
        seconds: time to finish for requests that cannot resume.
    """
    count = len(pool.slots)
    if not 0 <= index < count:
        accepted = f"0 to {count - 1}" if count > 1 else "0"
        return msg.Done(problem=f"there is no worker {index}; accepted: {accepted}")
    slot = pool.slots[index]
    if (worker := slot.retire()) is None:
        return msg.Done(problem=slot.problem or "another has requested it")
    reason = EngineDeadError(f"worker {index} is restarted, and waits no longer")
    wait_until(lambda: not service.move_from(index, reason), seconds)
    cut = service.move_from(index, reason, ends=True)
    worker.request_stop()
    wait_until(lambda: slot.is_open, load_seconds)
    return msg.Done(cut, slot.problem)
