"""All workers of one model: start, choose, read, restart, stop."""

from __future__ import annotations

import logging
import math
import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lmi_backend.errors import (
    ConnectionLostError,
    EngineDeadError,
    LmiError,
    UnavailableError,
    WorkerError,
)
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.machine import machine_problem
from lmi_backend.pool.adapters import AdapterSet
from lmi_backend.pool.command import link_package
from lmi_backend.pool.launch import launch
from lmi_backend.pool.load_failure import first_line
from lmi_backend.pool.scaling import Scaler
from lmi_backend.pool.slot import Slot, SlotState, health_of, slots_of
from lmi_backend.pool.spares import Spares
from lmi_backend.pool.survivors import Survivors
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.ipc.engine import Capabilities
    from lmi_backend.plan import EnginePlan
    from lmi_backend.pool.launch import StartingWorker
    from lmi_backend.pool.rank_group import Worker, WorkerStats

_log = logging.getLogger(__name__)

_STOP_SECONDS = 15.0


class Listener(Protocol):
    """Gets what workers send; called from the threads of the pool."""

    def on_messages(self, messages: list[msg.FromWorker]) -> None:
        """Take what one engine step, or several, brought."""

    def on_death(self, index: int, error: EngineDeadError) -> None:
        """Learn that every request of a worker is lost."""

    def on_ready(self) -> None:
        """Learn that one more worker takes requests, or that one never will."""


class Pool:
    def __init__(self, plan: EnginePlan, name: str, on_line: Callable[[str, str], None]) -> None:
        self._plan, self._on_line = plan, on_line
        self.adapters = AdapterSet(plan.config.adapters)
        self.on_start: Callable[[Worker], None] = lambda _worker: None
        """Called with a worker that is ready, before it is used."""
        self._lock = threading.Lock()
        self.slots = slots_of(plan, name)
        self._scaler: Scaler | None = None
        self.closing = threading.Event()
        self._spares = Spares(plan, self.launch)
        self.start_seconds = 0.0
        """What the longest start of a worker took."""
        self._folder = Path(tempfile.mkdtemp(prefix="lmi-", dir=os.environ.get(RUN_DIR_VARIABLE)))
        link_package(self._folder)
        self._survivors = Survivors(plan, name, self._folder)

    def start(self, listener: Listener) -> Capabilities:
        """Start the workers that always run; `listener` gets the messages of all.

        Raises:
            ConfigurationError: an engine refuses an option.
            WorkerStartError: a worker did not become ready.
        """
        always = [slot for slot in self.slots if slot.is_wanted]
        at_once = len(always) if self._plan.launch.parallel_loading else 1
        try:
            self._survivors.sort_out([slot.index for slot in always])
            # First what waits to be taken over, and not for ever.
            always.sort(key=lambda slot: not self._survivors.has(slot.index))
            with ThreadPoolExecutor(at_once) as executor:
                list(executor.map(self.start_slot, always))
        except BaseException:
            self.close()
            raise
        start = partial(self._run_slot, listener=listener)
        for slot in always:
            start(slot)
        if len(always) < len(self.slots):
            scaling = self._plan.scaling
            self._scaler = Scaler(self.slots, scaling, self._lock, start)
            self._scaler.start()
        first = self.slots[0].worker
        if first is None:
            raise UnavailableError("the pool was closed while it started")
        return first.capabilities

    def claim(
        self, width: int, choose: Callable[[Sequence[Slot]], Slot | None]
    ) -> tuple[int, Worker]:
        """As `Workers.claim`: the caller sends the request, and calls `done` at the end."""
        with self._lock:
            slot = choose([slot for slot in self.slots if slot.takes_requests])
            if slot is None or slot.worker is None:
                raise UnavailableError("; ".join(str(it) for it in self.slots if it.is_wanted))
            slot.outstanding += width
            slot.assigned += width
            return slot.index, slot.worker

    def note_adapter(self, name: str, digest: str) -> None:
        """Note which files of an adapter the workers have now; no digest: they have none."""
        for worker in [slot.worker for slot in self.slots if slot.worker is not None]:
            worker.note_adapter(name, digest)

    def end_worker(self, index: int) -> None:
        """End a worker at once; its requests resume in others, and another is started."""
        if (worker := self.slots[index].worker) is not None:
            worker.kill()

    def capacity(self) -> int:
        ready = sum(slot.is_open for slot in self.slots)
        return self._plan.worker_requests * ready

    def unwanted_capacity(self) -> int:
        return self._plan.worker_requests * sum(not slot.is_wanted for slot in self.slots)

    def note_queue(self, waiting: int, refused: str = "") -> None:
        if self._scaler is not None:
            self._scaler.note_queue(waiting, refused)

    def ready_in(self) -> float:
        if any(slot.takes_requests for slot in self.slots):
            return 0.0
        wanted = [slot for slot in self.slots if slot.is_wanted]
        if self.closing.is_set() or all(slot.state is SlotState.ABANDONED for slot in wanted):
            return math.inf
        return self.start_seconds

    def abort(self, index: int, request_ids: list[int]) -> None:
        worker = self.slots[index].worker
        try:
            if worker is not None and request_ids:
                worker.send(msg.Abort(request_ids))
        except ConnectionLostError as error:
            # It is dying, and its reader deals with that.
            _log.warning("worker %s: %s", worker.name if worker else index, error)

    def done(self, index: int, width: int = 1) -> None:
        with self._lock:
            slot = self.slots[index]
            slot.outstanding -= width
            slot.last_used = time.monotonic()

    def health(self) -> msg.Health:
        with self._lock:
            return health_of(self.slots)

    def stats(self) -> list[WorkerStats]:
        return [slot.worker_stats() for slot in self.slots]

    def end_with_stub(self) -> None:
        """Have no worker outlive this stub: the model is unloaded."""
        self._survivors.forget()

    def close(self) -> None:
        """Stop every worker and remove all traces; may be called twice."""
        self.closing.set()
        self.end_with_stub()
        self._spares.close()
        if self._scaler is not None:
            self._scaler.stop()
        with self._lock:
            workers = [slot.worker for slot in self.slots if slot.worker is not None]
            for slot in self.slots:
                slot.worker, slot.problem = None, "the server is stopping"
        if workers:
            with ThreadPoolExecutor(len(workers)) as executor:
                list(executor.map(lambda worker: worker.stop(_STOP_SECONDS), workers))
        for slot in self.slots:
            if slot.reader is not None:
                slot.reader.join(_STOP_SECONDS)
        self._survivors.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start_slot(self, slot: Slot) -> None:
        began = time.monotonic()
        _log.info("worker %s starts: %s", slot.name, self._plan.what)
        launched, worker = self._ready(slot)
        try:
            self.on_start(worker)
            with self.adapters.opening(worker, self.closing.is_set), self._lock:
                if is_used := not self.closing.is_set():
                    slot.fill(worker)
        except BaseException:
            worker.kill()
            raise
        if not is_used:
            worker.kill()
            return
        seconds = time.monotonic() - began
        self.start_seconds = max(self.start_seconds, seconds, self._survivors.start_seconds)
        self._survivors.note(slot, launched, self.start_seconds)
        _log.info("worker %s is ready after %.1f s, pid %d", slot.name, seconds, worker.pid)
        self._spares.replenish(slot)

    def _ready(self, slot: Slot) -> tuple[StartingWorker, Worker]:
        on_line, stops = partial(self._on_line, slot.name), self.closing.is_set
        adopted = self._survivors.adopt(slot, on_line, stops)
        slot.is_taken_over = adopted is not None
        if adopted is not None:
            return adopted
        launched = self._spares.take(slot) or self.launch(slot)
        return launched, launched.ready()

    def launch(self, slot: Slot) -> StartingWorker:
        files = self._survivors.files()
        launched = launch(
            self._plan,
            slot.index,
            name=slot.name,
            folder=self._folder,
            on_line=partial(self._on_line, slot.name),
            is_cancelled=self.closing.is_set,
            return_to=self._survivors.place(slot.index),
        )
        launched.files = files
        return launched

    def _run_slot(self, slot: Slot, listener: Listener) -> None:
        work = partial(self._keep_running, slot, listener)
        slot.reader = guarded_thread(f"lmi-{slot.name}", work)
        slot.reader.start()

    def _keep_running(self, slot: Slot, listener: Listener) -> None:
        """Read a worker until it dies, report that, and start another, as long as one is wanted."""
        while slot.is_wanted and not self.closing.is_set():
            worker = slot.worker
            if worker is not None:
                listener.on_ready()
                Reader(slot, worker, self._lock, self.closing).run(listener)
            if slot.is_wanted and not self.closing.is_set() and not self._restart(slot):
                listener.on_ready()
                return

    def _restart(self, slot: Slot) -> bool:
        """Start a slot again, with pauses; return False if it failed for good."""
        while slot.failures <= self._plan.launch.restart_limit:
            if self.closing.wait(slot.pause):
                return False
            try:
                self.start_slot(slot)
            except Exception as error:  # noqa: BLE001  whatever it was, the next try may do
                slot.failures, slot.last_life = slot.failures + 1, 0.0
                problem = str(error) if isinstance(error, LmiError) else machine_problem(error)
                slot.problem = f"it could not be restarted: {first_line(problem or repr(error))}"
                _log.error("worker %s: %s", slot.name, slot.problem, exc_info=not problem)
            else:
                return True
        slot.abandon()
        _log.error("worker %s: %s", slot.name, slot.problem)
        return False


@dataclass(frozen=True)
class Reader:
    """Reads the worker of a slot. When it returns, nothing of the worker is left."""

    slot: Slot
    worker: Worker
    lock: threading.Lock
    """Of the pool."""
    closing: threading.Event

    def run(self, listener: Listener) -> None:
        try:
            self._read(listener)
        except Exception as error:  # noqa: BLE001  a worker that nobody reads serves nobody
            _log.exception("worker %s: what it said could not be handled", self.slot.name)
            self._end(listener, f"was stopped: {type(error).__name__} in the stub")

    def _read(self, listener: Listener) -> None:
        slot, worker = self.slot, self.worker
        try:
            while True:
                messages = worker.read()
                how = [slot.note(message, self.lock) for message in messages]
                if not any(how):
                    listener.on_messages(messages)
                    continue
                # All its requests are lost and not only those it says so of; they may resume.
                pairs = zip(messages, how, strict=True)
                listener.on_messages([message for message, death in pairs if not death])
                listener.on_death(slot.index, EngineDeadError(max(how)))
                # It has nothing else to say, and the next one waits for its end.
                self._end(listener, f"was stopped: {max(how)}")
                return
        except WorkerError as error:
            if not slot.is_wanted:
                # It was told to end when it had no request.
                return
            if not self.closing.is_set():
                listener.on_death(slot.index, self._forget(worker.reap(error)))
            elif slot.worker is worker or slot.state is SlotState.DYING:
                self._end(listener, "was stopped")
            else:
                # `close` stops the workers that it takes, and those fail their requests themselves.
                listener.on_death(slot.index, self._forget("was stopped"))

    def _end(self, listener: Listener, how: str) -> None:
        self.worker.kill()
        listener.on_death(self.slot.index, self._forget(how))

    def _forget(self, how: str) -> EngineDeadError:
        """Take the worker out of its slot; return the error of its requests."""
        with self.lock:
            is_planned = self.slot.lose(how, is_closing=self.closing.is_set())
        text = f"worker {self.worker.name} {how}"
        _log.log(logging.INFO if is_planned else logging.ERROR, "%s", text)
        return EngineDeadError(text)
