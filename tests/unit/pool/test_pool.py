"""How a pool gets its workers, and what it says of them; tests/contract has real ones."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lmi_backend.engine_config import Identity
from lmi_backend.errors import UnavailableError, WorkerError, WorkerStartError
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.ipc.messages import FromWorker
from lmi_backend.pool import pool as module
from lmi_backend.pool.load_failure import LAST_LINES
from lmi_backend.pool.pool import Pool
from lmi_backend.pool.slot import Slot
from tests.support.run.waiting import wait_for
from tests.unit.plan.test_planner import plan
from tests.unit.pool.test_reader import Listener


class Worker:
    """A worker that is ready until it is stopped; it says nothing."""

    pid, takes_requests, unsent_bytes, is_broken = 1, True, 0, False

    def __init__(self, name: str = "m/0") -> None:
        self.name = name
        self.capabilities = Capabilities("echo", "1", 10)
        self.identity = Identity()
        self.is_over = threading.Event()

    def read(self) -> list[FromWorker]:
        self.is_over.wait(60)
        raise WorkerError("gone")

    def ready(self) -> "Worker":
        """A launch of it is the worker itself here."""
        return self

    def kill(self) -> None:
        self.is_over.set()

    def stop(self, _seconds: float) -> None:
        self.kill()

    def reap(self, error: WorkerError) -> str:
        return str(error)


class Survivors:
    """Those that a dead stub has left."""

    start_seconds, run = 0.0, None

    def __init__(self, *left: int) -> None:
        self.left = {index: Worker(f"left/{index}") for index in left}
        self.noted: list[int] = []

    def sort_out(self, _wanted: list[int]) -> None: ...

    def place(self, _index: int) -> str:
        return ""

    def has(self, index: int) -> bool:
        return index in self.left

    def files(self) -> None: ...

    def adopt(self, slot: Slot, *_: Any) -> tuple[Worker, Worker] | None:
        return (worker, worker) if (worker := self.left.get(slot.index)) else None

    def note(self, slot: Slot, *_: Any) -> None:
        self.noted.append(slot.index)

    def forget(self) -> None: ...

    def close(self) -> None: ...


NONE_LEFT = Survivors()


Make = Callable[..., Pool]


@pytest.fixture
def launched() -> list[str]:
    """Names of the workers that were started anew."""
    return []


@pytest.fixture
def make(launched: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    pools: list[Pool] = []

    def launch(*_: Any, name: str, **__: Any) -> Worker:
        launched.append(name)
        return Worker(name)

    def made(text: str, survivors: Survivors = NONE_LEFT) -> Pool:
        monkeypatch.setattr(module, "Survivors", lambda *_: survivors)
        pools.append(Pool(plan(f"option.spare_workers=0\n{text}"), "m", lambda *_: None))
        return pools[-1]

    monkeypatch.setattr(module, "launch", launch)
    yield made
    for pool in pools:
        pool.close()


def test_a_worker_that_was_left_is_taken_over_first_and_another_started(
    make: Make, launched: list[str]
) -> None:
    survivors = Survivors(1)
    pool = make("minWorkers=3", survivors)
    pool.start(Listener())
    assert [each.is_adopted for each in pool.stats()] == [False, True, False]
    assert launched == ["m/0", "m/2"]
    assert survivors.noted == [1, 0, 2]


def test_a_worker_that_is_killed_in_its_start_leaves_a_line_and_is_started_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool = make("retry_threshold=3")
    pool.start(Listener())
    problem = "the worker was killed by SIGKILL before it was ready"
    errors = [WorkerStartError(f"{problem}{LAST_LINES}loading\nmore"), None]

    def launch(*_: Any, name: str, **__: Any) -> Worker:
        if (error := errors.pop(0)) is not None:
            raise error
        return Worker(name)

    monkeypatch.setattr(module, "launch", launch)
    monkeypatch.setattr(Slot, "pause", 0.0)
    caplog.clear()
    pool.slots[0].worker.kill()  # type: ignore[union-attr]
    wait_for(lambda: not errors and pool.slots[0].is_open)
    lines = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert lines[1:] == [f"worker m/0: it could not be restarted: {problem}"]
    assert not any(each.exc_info for each in caplog.records)


def test_requests_are_claimed_and_done(make: Make) -> None:
    pool = make("minWorkers=2")
    offered: list[list[int]] = []

    def claim(width: int, wanted: int = 0) -> int:
        def choose(ready: list[Slot]) -> Slot | None:
            offered.append([each.index for each in ready])
            return next((each for each in ready if each.index == wanted), None)

        return pool.claim(width, choose)[0]

    with pytest.raises(UnavailableError):
        claim(1)
    pool.start(Listener())
    assert [claim(3), claim(1, 1), claim(1, 1), claim(1)] == [0, 1, 1, 0]
    assert [each.assigned for each in pool.stats()] == [4, 2]
    assert [pool.slots[index].outstanding for index in (0, 1)] == [4, 2]
    pool.done(0, 3)
    assert pool.slots[0].outstanding == 1
    pool.slots[0].retire()
    with pytest.raises(UnavailableError):
        claim(1)
    assert claim(1, 1) == 1
    assert offered == [[], *[[0, 1]] * 4, [1], [1]]
    pool.close()
    assert pool.ready_in() == math.inf


def test_capacity_is_that_of_open_workers(make: Make) -> None:
    pool = make("minWorkers=2\nmaxWorkers=3\noption.max_rolling_batch_size=8")
    pool.start(Listener())
    assert (pool.capacity(), pool.unwanted_capacity()) == (16, 8)
    pool.slots[1].retire()
    assert (pool.capacity(), pool.unwanted_capacity()) == (8, 8)
