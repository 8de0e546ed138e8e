"""Whatever ends the reading of a worker, its slot and its requests hear of it."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from lmi_backend.errors import EngineDeadError, WorkerError
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.messages import Failure, FromWorker, Heartbeat
from lmi_backend.pool.pool import Reader
from lmi_backend.pool.slot import Slot, SlotState

BEAT = Heartbeat(EngineStats())
DEAD = Failure(0, "dead", "CUDA error")


class Worker:
    """Says some things, and then fails."""

    name = "m/0"

    def __init__(self, *items: Sequence[FromWorker] | Exception) -> None:
        self._items = list(items)
        self.ends: list[str] = []

    def read(self) -> list[FromWorker]:
        item = self._items.pop(0)
        if isinstance(item, Exception):
            raise item
        return list(item)

    def kill(self) -> None:
        self.ends.append("killed")

    def reap(self, error: WorkerError) -> str:
        self.ends.append("reaped")
        return f"exited: {error}"


class Listener:
    """Notes what it hears."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.messages: list[FromWorker] = []
        self.deaths: list[tuple[int, str]] = []

    def on_messages(self, messages: list[FromWorker]) -> None:
        self.messages += messages
        if self.fails:
            raise RuntimeError("a defect")

    def on_death(self, index: int, error: EngineDeadError) -> None:
        self.deaths.append((index, str(error)))

    def on_ready(self) -> None:
        """Nothing waits for one."""


def read(heard: Worker, listener: Listener, *, is_closing: bool = False, **fields: Any) -> Slot:
    own = {"state": SlotState.READY, "worker": heard, **fields}
    slot = Slot(3, "m/0", is_extra=False, **own)
    closing = threading.Event()
    if is_closing:
        closing.set()
    Reader(slot, heard, threading.Lock(), closing).run(listener)  # type: ignore[arg-type]
    return slot


def test_a_worker_that_dies_is_reaped_and_its_requests_fail() -> None:
    worker, listener = Worker([BEAT], WorkerError("signal 9")), Listener()
    slot = read(worker, listener)
    assert listener.messages == [BEAT]
    assert listener.deaths == [(3, "worker m/0 exited: signal 9")]
    assert worker.ends == ["reaped"]
    assert (slot.worker, slot.state, slot.deaths) == (None, SlotState.STARTING, 1)


@pytest.mark.parametrize("items", [ValueError("a defect"), [BEAT]])
def test_a_defect_in_the_stub_ends_the_worker(items: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Of what it reads, or of who hears it: nobody would read that worker from now on."""
    worker, listener = Worker(items), Listener(fails=True)
    slot = read(worker, listener)
    ((index, error),) = listener.deaths
    assert (index, "in the stub" in error) == (3, True)
    # With the traceback, by which the defect is found.
    assert caplog.records[0].exc_info
    assert worker.ends == ["killed"]
    assert (slot.worker, slot.deaths) == (None, 1)


def test_a_worker_whose_engine_died_says_nothing_else() -> None:
    worker, listener = Worker([BEAT, DEAD], [BEAT]), Listener()
    slot = read(worker, listener)
    assert listener.messages == [BEAT]
    # Before it is killed, and after.
    assert listener.deaths == [(3, "CUDA error"), (3, "worker m/0 was stopped: CUDA error")]
    assert worker.ends == ["killed"]
    assert slot.deaths == 1


def test_a_worker_that_is_not_wanted_fails_nothing() -> None:
    worker, listener = Worker(WorkerError("gone")), Listener()
    slot = read(worker, listener, state=SlotState.UNWANTED)
    assert (listener.deaths, worker.ends, slot.deaths) == ([], [], 0)


@pytest.mark.parametrize(
    ("fields", "ends"),
    [
        ({}, ["killed"]),
        ({"worker": None, "state": SlotState.DYING}, ["killed"]),
        ({"worker": None}, []),
    ],
)
def test_a_pool_that_closes_stops_the_workers_that_it_takes(
    fields: dict[str, Any], ends: list[str]
) -> None:
    worker, listener = Worker(WorkerError("gone")), Listener()
    slot = read(worker, listener, is_closing=True, **fields)
    assert [index for index, _ in listener.deaths] == [3]
    assert (worker.ends, slot.deaths) == (ends, 0)
