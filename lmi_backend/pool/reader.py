"""Read a worker until it dies, and tell who hears it, and whose requests it had."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lmi_backend.errors import EngineDeadError, WorkerError
from lmi_backend.pool.slot import SlotState

if TYPE_CHECKING:
    import threading

    from lmi_backend.ipc import messages as msg
    from lmi_backend.pool.rank_group import Worker
    from lmi_backend.pool.slot import Slot

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Gets what workers send; called from the threads of the pool."""

    def on_messages(self, messages: list[msg.FromWorker]) -> None:
        """Take what one engine step, or several, brought."""

    def on_death(self, index: int, error: EngineDeadError) -> None:
        """Learn that every request of a worker is lost."""

    def on_ready(self) -> None:
        """Learn that one more worker takes requests, or that one never will."""


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
