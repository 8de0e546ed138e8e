"""The end of a pool at each point of a worker's death and its restart: nothing is left of it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import psutil
import pytest

from lmi_backend.pool.launch import StartingWorker
from lmi_backend.pool.pool import Pool
from lmi_backend.pool.slot import Slot
from lmi_backend.pool.spares import Spares
from lmi_backend.supervisor.processes import lives
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.harness import Harness

Start = Callable[..., AbstractContextManager[Harness]]
ECHO = {"option.rolling_batch": "echo", "option.spare_workers": 1, "option.die_on": "die"}
ELASTIC = {"option.rolling_batch": "echo", "minWorkers": 1, "maxWorkers": 2, "max_idle_time": 1}
POINTS: dict[str, tuple[type, str]] = {
    "an engine tells that it died": (Slot, "note"),
    "a worker is lost": (Slot, "lose"),
    "its spare is taken": (Spares, "take"),
    "the next one is ready": (StartingWorker, "ready"),
    "the next one is filled in": (Slot, "fill"),
    "a spare is asked for": (Spares, "replenish"),
    "a spare is launched": (Pool, "launch"),
    "a spare is prepared": (StartingWorker, "prepare"),
}


class Moment:
    """Ends a service as soon as a method has done its work for the first time."""

    def __init__(self, engine: Harness) -> None:
        self._pool = engine.pool
        self._thread = threading.Thread(target=engine.service.close)
        self._once = threading.Lock()

    def come(self) -> None:
        """End the service in a thread of its own; return when that has begun."""
        if self._once.acquire(blocking=False):
            self._thread.start()
            wait_for(self._pool.closing.is_set)  # type: ignore[attr-defined]

    def wait(self) -> None:
        """Wait until it has come, and the service has ended."""
        wait_for(self._once.locked)
        wait_for(lambda: self._thread.ident is not None)
        self._thread.join(HANG_SECONDS)
        assert not self._thread.is_alive()


def _at(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, moment: Moment) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **named: Any) -> Any:
        result = original(*args, **named)
        # Most of what a worker says is no death.
        if name != "note" or result:
            moment.come()
        return result

    monkeypatch.setattr(owner, name, wrapped)


@pytest.fixture
def started_here() -> Iterator[Callable[[], list[psutil.Process]]]:
    """Return what lives of the processes that the test has started."""
    before = set(psutil.Process().children(recursive=True))

    def alive() -> list[psutil.Process]:
        below = psutil.Process().children(recursive=True)
        return [each for each in below if each not in before and lives(each)]

    yield alive
    wait_for(lambda: not alive())


@pytest.mark.parametrize("point", POINTS)
def test_as_soon_as(
    start: Start,
    started_here: Callable[[], list[psutil.Process]],
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    with start(ECHO) as engine:
        wait_for(lambda: engine.service.snapshot().workers[0].has_spare)
        moment = Moment(engine)
        _at(monkeypatch, *POINTS[point], moment)
        engine.start("die")
        moment.wait()
        wait_for(lambda: not started_here())


@pytest.mark.parametrize("name", ["want", "dismiss"])
def test_as_soon_as_the_load_starts_or_stops_a_worker(
    start: Start,
    started_here: Callable[[], list[psutil.Process]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    with start(ELASTIC) as engine:
        moment = Moment(engine)
        _at(monkeypatch, Slot, name, moment)
        engine.pool.note_queue(1000)
        moment.wait()
        wait_for(lambda: not started_here())


def test_as_soon_as_it_is_ready_and_cannot_be_told_from_others(
    start: Start,
    started_here: Callable[[], list[psutil.Process]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that nobody uses is ended before another try."""
    with start(ECHO | {"option.spare_workers": 0}) as engine:
        pool: Any = engine.pool
        moment = Moment(engine)

        def fail(*_: object) -> None:
            raise OSError("its files cannot be read")

        pool.on_start = fail
        _at(monkeypatch, StartingWorker, "ready", moment)
        engine.start("die")
        moment.wait()
        wait_for(lambda: not started_here())
