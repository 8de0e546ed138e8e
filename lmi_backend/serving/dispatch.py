"""Bring requests to workers: at once, or in their tenant's turn where all workers are busy."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any

from lmi_backend.errors import (
    ConnectionLostError,
    EngineDeadError,
    LmiError,
    NotSentError,
    UnavailableError,
)
from lmi_backend.resume.resumption import Resumption
from lmi_backend.serving.admission import Admission
from lmi_backend.serving.choice import Choice
from lmi_backend.serving.promises import Promises
from lmi_backend.serving.request_state import fault_of
from lmi_backend.threads import QueueThreads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable

    from lmi_backend.generation import Chunk
    from lmi_backend.serving.admission import Limits
    from lmi_backend.serving.request_state import RequestState
    from lmi_backend.serving.stats import RequestStats
    from lmi_backend.serving.workers import SendsFrames, Workers

_log = logging.getLogger(__name__)


class Dispatch:
    """Sends the requests of a service to its workers.

    The caller holds the service's lock, except for the methods that send to a worker. An unexpected
    exception fails the request that it concerns, and no other.

    Args:
        fail: fails a request with an error; called with the lock held.
        renew: gives a request another id and packs it again, so that late messages of its old
            worker do not find it; called with the lock held.
    """

    def __init__(
        self,
        workers: Workers,
        limits: Limits,
        lock: threading.Lock,
        stats: RequestStats,
        fail: Callable[[RequestState, LmiError], None],
        renew: Callable[[RequestState], None],
    ) -> None:
        self._workers, self._lock, self._fail, self._renew = workers, lock, fail, renew
        self.admission = Admission(limits)
        requests = limits.requests
        is_used = bool(requests.ttft_ms or requests.tpot_ms)
        self.promises = Promises(self.admission, stats, is_used=is_used)
        self.choice = Choice(requests.concurrency_threshold, requests.max_running)
        self.resumption: Resumption[RequestState] = Resumption(
            "a worker", requests.migration_timeout, requests.migration_limit
        )
        # Not with the lock held: a large frame takes a while to hand to the socket.
        self.released = QueueThreads[Any](lambda item: self.send(*item), "lmi-start")
        """What had to wait, each with the worker it is to be sent to now."""

    def enter(self, state: RequestState, *, may_wait: bool) -> SendsFrames | None:
        """Admit a request; return the worker to send it to now, or None if it is queued.

        Raises:
            RequestError: the request needs more than the capacity.
            UnavailableError: the queue is full, or no worker is ready.
        """
        displaced = self._displaced(state)
        worker, wait_until = None, math.inf
        if not may_wait or self.admission.is_free(self._workers.capacity()):
            try:
                worker = self._claim(state)
            except UnavailableError as error:
                self._workers.note_queue(self.admission.waiting, str(error))
                wait_until = self.resumption.wait_until(self._workers.ready_in) if may_wait else 0.0
                if not wait_until:
                    raise
                self.resumption.num_queued += 1
        for other, reason in displaced.items():
            self._fail(other, UnavailableError(reason))
        if worker is None:
            if state.span is not None:
                state.span.event("queued")
            state.expires_at = wait_until
            self.admission.enqueue(state)
            self.release()
            self._workers.note_queue(self.admission.waiting)
        return worker

    def _displaced(self, state: RequestState) -> dict[RequestState, str]:
        try:
            displaced = self.admission.displaced_by(state, self._workers.unwanted_capacity())
            if state.due != math.inf or state.tpot != math.inf:
                displaced |= self.promises.check(state, self._workers.capacity())
        except UnavailableError as error:
            self._workers.note_queue(self.admission.waiting, str(error))
            raise
        return displaced

    def send(self, state: RequestState, worker: SendsFrames) -> None:
        """Send a request to its worker, or to another if that is gone; called without the lock."""
        try:
            self._send(state, worker)
        except Exception:  # noqa: BLE001  the thread sends what others wait for
            with self._lock:
                self._break(state)

    def _break(self, state: RequestState) -> None:
        state.frame = ()
        self._fail(state, fault_of(state, "the request cannot be brought to a worker"))

    def _send(self, state: RequestState, to: SendsFrames | None) -> None:
        while to is not None:
            problem = state.progress.meet(to.identity) if state.progress is not None else ""
            if problem:
                text = f"{state.loss}; the next worker cannot resume its answer: {problem}"
                with self._lock:
                    self._fail(state, EngineDeadError(text))
                break
            error: ConnectionLostError | None = None
            try:
                to.send_frame(state.frame)
            except ConnectionLostError as lost:
                error = lost
            with self._lock:
                to = self._after_sending(state, to, error)
        if state.error is not None:
            # It was ended before the worker knew of it.
            self.abort(state)

    def on_death(self, states: Iterable[RequestState], error: EngineDeadError) -> None:
        """Resume the requests of a worker that died, or fail them; senders do so of unsent ones."""
        # An answer that is complete needs no worker, also where it came before all was sent.
        open_ = [each for each in states if each.error is None and not each.is_complete]
        lost = [state for state in open_ if not state.frame]
        for state in open_:
            state.death = error if state.frame else None
        before = self.resumption.num_resumed
        for state, refused in zip(lost, self.resumption.refusals(lost, error), strict=True):
            self._resume(state, error, refused)
        resumed = self.resumption.num_resumed - before
        if lost:
            _log.warning("%s; of its %d requests %d resume", error, len(lost), resumed)
        self.release()

    def _resume(
        self, state: RequestState, error: EngineDeadError, refused: EngineDeadError | None
    ) -> None:
        """Let a request that has lost its worker wait for another, or end it."""
        if refused is not None or not self._moves(state, error):
            self._fail(state, refused or error)
        elif state.progress is not None:
            state.progress.times += 1

    def move(self, states: Iterable[RequestState], reason: EngineDeadError) -> list[int]:
        """Let requests resume elsewhere that can, whose worker lives; return what it may forget."""
        moved = []
        for state in states:
            request_id, is_running = state.id, not state.frame and not state.is_complete
            if is_running and state.error is None and self._moves(state, reason):
                moved.append(request_id)
        self.release()
        return moved

    def _moves(self, state: RequestState, error: EngineDeadError) -> bool:
        """Let a request wait for another worker; return False if it cannot resume there."""
        try:
            return self._move(state, error)
        except Exception:  # noqa: BLE001  the others of its worker resume
            self._break(state)
            return False

    def _move(self, state: RequestState, error: EngineDeadError) -> bool:
        progress, wait_until = state.progress, self.resumption.wait_until(self._workers.ready_in)
        if progress is None or not progress.can_continue or not wait_until:
            return False
        if state.worker is not None:
            self._leave(state.worker, state)
            self.admission.left(state)
            self.promises.left(state)
        state.worker, state.death, state.loss = None, None, error
        if state.span is not None:
            state.span.event("paused", reason=str(error))
        state.expires_at = wait_until
        self.resumption.num_resumed += 1
        self.resumption.num_repeated += state.num_tokens
        progress.is_acknowledged = False
        self._renew(state)
        self._enqueue(state)
        return True

    def _enqueue(self, state: RequestState) -> None:
        if not self.resumption.quarantine(state):
            self.admission.enqueue(state)

    def acknowledged(self, state: RequestState, chunk: Chunk | None) -> None:
        """Note that a worker has brought the first of a request's answer."""
        self.choice.begun(state, chunk)
        if chunk is not None and state.width == state.n:
            cached = chunk.num_cached_tokens or 0
            self.admission.begun(state, chunk.num_prompt_tokens, cached)
        if self.promises.is_used:
            self.promises.begun(state, chunk)
        if self.resumption.release(state):
            self.release()

    def expire(self, state: RequestState) -> None:
        """End a request that waits for long enough, if no worker is ready; without the lock."""
        with self._lock:
            if state.worker is not None or self._workers.capacity():
                state.expires_at = math.inf
                # It has one, or waits for its turn: perhaps for a worker that was behind.
                self.release()
            elif state.error is None:
                self._fail(state, self.resumption.expire(state.loss))

    def _after_sending(
        self, state: RequestState, worker: SendsFrames, error: ConnectionLostError | None
    ) -> SendsFrames | None:
        """Return the worker that is to get a request instead of the one that did not get it."""
        if isinstance(error, NotSentError) and state.error is None:
            other = self._elsewhere(state)
            if other is not None:
                _log.warning("worker %s: %s; a request goes to another", worker.name, error)
                return other
        state.frame = ()
        if error is not None and state.death is None:
            state.death = EngineDeadError(f"worker {worker.name}: {error}")
        if state.death is not None and state.error is None and not state.is_complete:
            refused = self.resumption.refusal(state, state.death)
            self._resume(state, state.death, refused)
            self.release()
        return None

    def _elsewhere(self, state: RequestState) -> SendsFrames | None:
        """Choose another worker; None where there is none."""
        before = state.worker
        try:
            state.worker, worker = self._choose(state)
        except UnavailableError:
            return None
        state.death = None
        if before is not None:
            self._workers.done(before, state.width)
        return worker

    def abort(self, state: RequestState) -> None:
        """Tell the worker, if there is one, that nobody waits; called without the lock."""
        if state.worker is not None:
            self._workers.abort(state.worker, [state.id])

    def withdraw(self, state: RequestState) -> None:
        """Let a request wait no longer, if it did: it is about to end."""
        self.admission.withdraw(state)
        self.resumption.release(state)

    def ended(self, state: RequestState) -> None:
        if state.worker is not None:
            self._leave(state.worker, state)
            self.admission.ended(state)
            if self.promises.is_used:
                self.promises.ended(state)
        self.resumption.release(state)
        self.release()

    def release(self) -> None:
        while not self._must_wait() and (state := self._next()) is not None:
            if problem := self.promises.broken(state):
                self._fail(state, problem)
                continue
            try:
                worker = self._claim(state)
            except UnavailableError as error:
                if self._waits_on(state, error):
                    return
            except Exception:  # noqa: BLE001  the next may start
                self._break(state)
            else:
                self.released.put((state, worker))

    def _must_wait(self) -> bool:
        """Tell whether no worker is ready, and one will be soon enough."""
        return (
            not self._workers.capacity() and self.resumption.wait_until(self._workers.ready_in) > 0
        )

    def _waits_on(self, state: RequestState, error: UnavailableError) -> bool:
        """Requeue a request if a worker is expected; return false after failing it."""
        state.expires_at = self.resumption.wait_until(self._workers.ready_in)
        if state.expires_at:
            self._enqueue(state)
            return True
        self._fail(state, state.loss or error)
        return False

    def _next(self) -> RequestState | None:
        """Return the request that starts now; one in quarantine starts alone."""
        return self.resumption.next() or self.admission.next(self._workers.capacity())

    def _claim(self, state: RequestState) -> SendsFrames:
        """Choose a worker, whose death finds the state from here on."""
        state.worker, worker = self._choose(state)
        if self.promises.is_used:
            self.promises.started(state, self._workers.capacity())
        self.admission.started(state)
        if state.span is not None:
            state.span.event("resumed" if state.loss else "started", worker=worker.name)
        return worker

    def _choose(self, state: RequestState) -> tuple[int, SendsFrames]:
        return self._workers.claim(state.width, partial(self.choice.choose, state))

    def _leave(self, worker: int, state: RequestState) -> None:
        self._workers.done(worker, state.width)
        self.choice.begun(state)
