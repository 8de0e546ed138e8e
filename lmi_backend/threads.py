"""Threads that outlive a fault of their own work, and when Python looks for garbage."""

from __future__ import annotations

import gc
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


_NEW_OBJECTS: Final = 5_000
"""After which the young ones are looked at; Python's own 700 are made by a few requests."""


def expect_growth() -> None:
    """Look for garbage seldom; to be called before libraries are loaded.

    What an import makes stays. Looking at it again and again is an eighth of the time that vLLM's
    modules take, in each of its processes.
    """
    gc.set_threshold(_NEW_OBJECTS, 20, 50)


def spare_collections() -> None:
    """Keep garbage collections short and rare; to be called when all is loaded.

    A model's library is a million objects that live as long as the process: a full collection
    would stop every stream to look at all of them. What requests leave behind has few cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 5)


_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")

_POLL_SECONDS: Final = 0.02


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not (done := is_so()) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    return done


PAUSE_SECONDS: Final = 1.0
"""Before work that has failed begins again, so that one that always fails costs little."""


def guarded_thread(name: str, work: Callable[[], object]) -> threading.Thread:
    """Return a thread, not yet started, that finishes when its work returns.

    Work that raises instead is logged with its trace, and begins again after a pause.
    """

    def run() -> None:
        while not _returns(name, work):
            time.sleep(PAUSE_SECONDS)

    return threading.Thread(target=run, name=name, daemon=True)


def _returns(name: str, work: Callable[[], object]) -> bool:
    try:
        work()
    except Exception:  # noqa: BLE001  whatever it was, the next round may do
        _log.exception("thread %s: an unexpected error; its work begins again", name)
        return False
    return True


class QueueThreads(Generic[_Item]):
    """Threads that take the items of one queue; one that fails does not keep the next."""

    def __init__(self, take: Callable[[_Item], object], *names: str) -> None:
        self._take = take
        self._items: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self.threads = [guarded_thread(name, self.run) for name in names]
        self.put = self._items.put
        """Queues an item behind those before it; never blocks."""
        self.num_waiting = self._items.qsize
        """Returns how many items wait."""

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """End the threads, once all that was put before is handled."""
        for _ in self.threads:
            self._items.put(None)

    def step(self) -> None:
        """Take in this thread what was put so far, where no other thread takes it."""
        self._items.put(None)
        self.run()

    def run(self) -> None:
        while (item := self._items.get()) is not None:
            try:
                self._take(item)
            except Exception:  # noqa: BLE001  the next may do
                _log.exception("%s: an unexpected error", threading.current_thread().name)
            # The thread waits for the next one, perhaps for long: a request has up to 60 MB.
            del item
