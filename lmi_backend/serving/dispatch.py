"""Bring requests to workers: at once, or in their tenant's turn where all workers are busy."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING, Final, Protocol

from lmi_backend.errors import (
    ConnectionLostError,
    EngineDeadError,
    LmiError,
    NotSentError,
    UnavailableError,
)
from lmi_backend.serving.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.ipc import messages as msg
    from lmi_backend.ipc.engine import Capabilities
    from lmi_backend.pool.pool import Listener
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.limits import Limits
    from lmi_backend.serving.request_state import RequestState

_log = logging.getLogger(__name__)

_DISPLACED: Final = (
    "made way for another tenant's request, which found the queue full (job_queue_size); "
    "the tenant it is of has the most requests waiting"
)


class Workers(Protocol):
    """What generates: a `Pool`, or that of another model, through its endpoint."""

    def start(self, listener: Listener) -> Capabilities:
        """Start; from now on the listener gets the messages of the workers."""
        ...

    def claim(self, width: int) -> tuple[int, SendsFrames]:
        """Choose a worker for `width` more answers, until `done`; return its index and itself."""
        ...

    def capacity(self) -> int:
        """Return how many answers the workers that are ready generate at once."""
        ...

    def unwanted_capacity(self) -> int:
        """Return how many more answers there could be at once if every worker ran."""
        ...

    def note_queue(self, waiting: int, refused: str = "") -> None:
        """Learn how many answers wait for a worker, or why a request was refused; never blocks."""
        ...

    def abort(self, index: int, request_ids: list[int]) -> None:
        """Tell a worker that nobody waits for some requests."""
        ...

    def done(self, index: int, width: int) -> None:
        """Take back `width` answers that have ended."""
        ...

    def health(self) -> msg.Health:
        """Tell whether a request would be taken, and if not, why."""
        ...

    def stats(self) -> list[WorkerStats]:
        """Return the stats of each worker."""
        ...

    def close(self) -> None:
        """End it in order."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class SendsFrames(Protocol):
    """One worker, or another model that stands for its workers."""

    @property
    def name(self) -> str:
        """Its name in logs."""
        ...

    def send_frame(self, frame: bytes) -> None:
        """Send packed messages.

        Raises:
            NotSentError: they cannot be sent, and nothing of them was; `claim` knows it.
            ConnectionLostError: they cannot be sent.
        """
        ...


class Dispatch:
    """Sends the requests of a service to its workers.

    Its methods are called with the service's lock held, but for those that send to a worker, which
    may take a while.

    Args:
        lock: the service's.
        fail: ends a request with an error; called with the lock held.
    """

    def __init__(
        self,
        workers: Workers,
        limits: Limits,
        lock: threading.Lock,
        fail: Callable[[RequestState, LmiError], None],
    ) -> None:
        self._workers, self._lock, self._fail = workers, lock, fail
        self._admission = Admission(limits)
        self._released: queue.SimpleQueue[tuple[RequestState, SendsFrames] | None] = (
            queue.SimpleQueue()
        )
        # Not the senders' work: a worker that does not read would stop the answers of all others.
        self._thread = threading.Thread(target=self._send_released, name="lmi-start", daemon=True)

    @property
    def num_waiting(self) -> int:
        """Answers of the requests that no worker was asked for yet."""
        return self._admission.waiting

    def start(self) -> None:
        """Start the thread that sends what had to wait."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._released.put(None)

    def enter(self, state: RequestState, *, may_wait: bool) -> SendsFrames | None:
        """Take a request in; return the worker it is to be sent to now, or None: then it waits.

        Raises:
            RequestError: it asks for more than the capacity.
            UnavailableError: the queue is full, or no worker is ready.
        """
        try:
            displaced = self._admission.displaced_by(state, self._workers.unwanted_capacity())
            is_free = not may_wait or self._admission.is_free(self._workers.capacity())
            worker = self._claim(state) if is_free else None
        except UnavailableError as error:
            self._workers.note_queue(self.num_waiting, str(error))
            raise
        for other in displaced:
            self._fail(other, UnavailableError(_DISPLACED))
        if worker is None:
            self._admission.hold(state)
            self.release()
            self._workers.note_queue(self.num_waiting)
        return worker

    def send(self, state: RequestState, worker: SendsFrames) -> None:
        """Send a request to its worker; called without the lock.

        If that is gone and got nothing of it, another worker gets it.
        """
        to: SendsFrames | None = worker
        while to is not None:
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

    def on_death(self, state: RequestState, error: EngineDeadError) -> None:
        """Note that the worker of a request died; its sender sees to one that is not sent yet."""
        if state.frame:
            state.death = error
        else:
            self._fail(state, error)

    def _after_sending(
        self, state: RequestState, worker: SendsFrames, error: ConnectionLostError | None
    ) -> SendsFrames | None:
        """Return the worker that is to get a request instead of the one that did not get it."""
        if isinstance(error, NotSentError) and state.error is None:
            other = self._elsewhere(state)
            if other is not None:
                _log.warning("worker %s: %s; a request goes to another", worker.name, error)
                return other
        state.frame = b""
        if error is not None:
            self._fail(state, state.death or EngineDeadError(f"worker {worker.name}: {error}"))
        elif state.death is not None:
            self._fail(state, state.death)
        return None

    def _elsewhere(self, state: RequestState) -> SendsFrames | None:
        """Choose another worker; None where there is none."""
        before = state.worker
        try:
            state.worker, worker = self._workers.claim(state.width)
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
        self._admission.withdraw(state)

    def ended(self, state: RequestState) -> None:
        """Free the capacity of a request that has ended, so that others start."""
        if state.worker is not None:
            self._workers.done(state.worker, state.width)
            self._admission.ended(state)
        self.release()

    def release(self) -> None:
        """Let requests start that waited, as far as there is capacity."""
        while (state := self._admission.next(self._workers.capacity())) is not None:
            try:
                self._released.put((state, self._claim(state)))
            except UnavailableError as error:
                self._fail(state, error)

    def _claim(self, state: RequestState) -> SendsFrames:
        """Choose a worker, whose death finds the state from here on."""
        state.worker, worker = self._workers.claim(state.width)
        self._admission.started(state)
        return worker

    def _send_released(self) -> None:
        while (item := self._released.get()) is not None:
            self.send(*item)
