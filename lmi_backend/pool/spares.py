"""Spares: processes that have prepared all they can to become the next worker of their slot.

A spare has imported its engine, read config and tokenizer, and started the engine's processes. It
has no memory of a device, and so none of the model: it loads that when its slot's worker dies. On a
CPU it has loaded the model, if there is memory for a second one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import WorkerStartError
from lmi_backend.plan.hardware import host_memory
from lmi_backend.pool.survivors import files_of
from lmi_backend.printable import GIB
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.plan import EnginePlan
    from lmi_backend.pool.launch import StartingWorker
    from lmi_backend.pool.slot import Slot

_log = logging.getLogger(__name__)

LEAST_MEMORY: Final = 4 * GIB
"""Bytes that are to be available before a spare is made; one of vLLM takes about 1 GiB."""
_SETTLE_SECONDS: Final = 2.0
"""Before another spare is made: it would take the cores from the requests that resume."""
_WATCH_SECONDS: Final = 1.0
_END_SECONDS: Final = 5.0
_MOST_FAILURES: Final = 2
"""Spares of a slot that failed, after which it gets no more."""


class Spares:
    """The spares of a pool, at most one for a slot; the first slots have one."""

    def __init__(self, plan: EnginePlan, launch: Callable[[Slot], StartingWorker]) -> None:
        self._settings, self._config, self._launch = plan.launch, plan.config, launch
        self._environment = {**os.environ, **plan.launch.environment}
        self._lock = threading.Lock()
        self.spares: dict[int, StartingWorker | None] = {}
        """Of each slot that has one; None while it is made."""
        self.keepers: list[threading.Thread] = []
        self._failures: dict[int, int] = {}
        self._closing = threading.Event()

    def replenish(self, slot: Slot) -> None:
        """Make a spare for a slot whose worker is ready, if it is to have one and has none."""
        has_failed = self._failures.get(slot.index, 0) >= _MOST_FAILURES
        if slot.index >= self._settings.spare_workers or has_failed:
            return
        with self._lock:
            if slot.index in self.spares or self._closing.is_set():
                return
            self.spares[slot.index] = None
            self.keepers = [each for each in self.keepers if each.is_alive()]
            keeper = guarded_thread(f"lmi-spare-{slot.name}", lambda: self._keep(slot))
            self.keepers.append(keeper)
            keeper.start()

    def take(self, slot: Slot) -> StartingWorker | None:
        """Return the spare of a slot, which the caller owns from now on; None if there is none.

        One that does not fit any more is killed. So is one whose slot's worker dies again and
        again, because a spare may be the reason.
        """
        with self._lock:
            if (spare := self.spares.get(slot.index)) is None:
                return None
            self._remove(slot)
        reason = "its worker died soon after its start, again" if slot.fails_again else ""
        if not reason and spare.files != files_of(self._config, self._environment):
            reason = "the model's files have changed"
        if reason:
            _log.info("worker %s: its spare is not used: %s", slot.name, reason)
            spare.kill()
            return None
        return spare

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            left, self.spares = list(self.spares.values()), {}
        for spare in left:
            if spare is not None:
                spare.kill()
        for keeper in self.keepers:
            keeper.join(_END_SECONDS)

    def _keep(self, slot: Slot) -> None:
        spare = None
        if (slot.deaths or slot.is_taken_over) and self._closing.wait(_SETTLE_SECONDS):
            return
        try:
            spare = self._make(slot)
            self._watch(slot, spare)
        except Exception as error:  # noqa: BLE001  a worker starts without one, too
            with self._lock:
                is_lost = slot.index in self.spares and self.spares[slot.index] is spare
                if is_lost:
                    self._remove(slot)
            if spare is not None and is_lost:
                spare.kill()
            if is_lost and not self._closing.is_set():
                self._failures[slot.index] = self._failures.get(slot.index, 0) + 1
                _log.warning("worker %s has no spare: %s", slot.name, error)

    def _make(self, slot: Slot) -> StartingWorker:
        available = host_memory().available
        if available < LEAST_MEMORY:
            raise WorkerStartError(
                f"{available / GIB:.1f} GiB of memory are available, and {LEAST_MEMORY / GIB:g} "
                "are wanted (option.spare_workers)"
            )
        began = time.monotonic()
        spare = self._launch(slot)
        # What failed once may have failed because of it.
        loaded = self._settings.spare_bytes * self._settings.spare_workers
        has_room = bool(loaded) and available - loaded >= LEAST_MEMORY
        # A model that is nowhere here may change while nobody sees it.
        is_seen = bool(spare.files) or not self._config.model
        loads = has_room and is_seen and not self._failures.get(slot.index)
        try:
            spare.prepare(loads=loads)
            self._add(slot, spare)
        except BaseException:
            spare.kill()
            raise
        seconds = time.monotonic() - began
        what = "which has loaded the model" if loads else "without the model"
        _log.info(
            "worker %s has a spare after %.1f s, pid %d, %s", slot.name, seconds, spare.pid, what
        )
        return spare

    def _add(self, slot: Slot, spare: StartingWorker) -> None:
        with self._lock:
            if self._closing.is_set():
                raise WorkerStartError("the server is stopping")
            self.spares[slot.index], slot.has_spare = spare, True

    def _remove(self, slot: Slot) -> None:
        del self.spares[slot.index]
        slot.has_spare = False

    def _watch(self, slot: Slot, spare: StartingWorker) -> None:
        """Wait until a spare is used; raise WorkerStartError where its process has exited."""
        while not self._closing.wait(_WATCH_SECONDS) and self.spares.get(slot.index) is spare:
            spare.check()
