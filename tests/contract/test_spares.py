"""A process that has prepared itself takes the place of a worker that is killed or restarted."""

import logging
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psutil
import pytest

from lmi_backend.ipc import messages as msg
from lmi_backend.plan import planner
from lmi_backend.serving.service import renew_worker
from lmi_backend.supervisor.processes import lives
from tests.contract.conftest import MPI
from tests.support.run.waiting import wait_for
from tests.support.servers.harness import Harness

Start = Callable[..., AbstractContextManager[Harness]]
ECHO = {"option.rolling_batch": "echo", "option.token_seconds": 0.01, "option.spare_workers": 1}
PROMPT = "one two three "
TOKENS = 100


def spare_of(engine: Harness, worker: psutil.Process) -> psutil.Process:
    """Wait until a worker has a spare, and return that."""
    wait_for(lambda: has_spare(engine))
    (spare,) = [each for each in engine.workers if each.pid != worker.pid]
    return spare


def has_spare(engine: Harness) -> bool:
    return engine.service.snapshot().workers[0].has_spare


def deaths(engine: Harness) -> int:
    return engine.service.snapshot().workers[0].deaths


def wait_for_next(engine: Harness, before: int) -> None:
    """Wait until a worker's death was noticed, and the next one is ready.

    Streams may end before that: then the dead one and its spare still count as they are.

    Args:
        before: deaths until then.
    """
    wait_for(lambda: deaths(engine) > before and engine.service.health().is_ready)


def oldest(engine: Harness) -> psutil.Process:
    """Return the oldest process that is alive: one that was killed may not be reaped yet."""
    return min(filter(lives, engine.workers), key=psutil.Process.create_time)


def replaced(engine: Harness, worker: psutil.Process) -> psutil.Process:
    """Kill a worker under streams, which all go on, and return what took its place."""
    before = deaths(engine)
    sinks = [engine.start(PROMPT, max_tokens=TOKENS).wait_first() for _ in range(4)]
    worker.send_signal(signal.SIGKILL)
    for sink in sinks:
        assert sink.wait().error is None
        assert sum(delta.num_tokens for delta in sink.deltas) == TOKENS
    wait_for_next(engine, before)
    # The oldest: its own spare may have been begun.
    return oldest(engine)


def test_a_spare_becomes_the_worker_and_another_is_made(start: Start) -> None:
    with start(ECHO) as echo:
        worker = echo.workers[0]
        spare = spare_of(echo, worker)
        assert replaced(echo, worker) == spare
        assert spare_of(echo, spare).pid != worker.pid
    assert not echo.workers


@pytest.mark.parametrize("more", [{}, MPI], ids=["one process", "two ranks"])
def test_a_spare_that_has_loaded_the_model_takes_over(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    more: dict[str, Any],
) -> None:
    monkeypatch.setattr(planner, "loaded_bytes", lambda *_: 1)
    with caplog.at_level(logging.INFO), start(ECHO | more) as echo:
        worker = echo.workers[0]
        spare = spare_of(echo, worker)
        wait_for(lambda: "which has loaded the model" in caplog.text)
        assert replaced(echo, worker) == spare
        spare_of(echo, spare)
    assert not echo.workers


def test_a_worker_that_is_restarted_gives_way_to_its_spare(start: Start) -> None:
    with start(ECHO) as echo:
        spare = spare_of(echo, echo.workers[0])
        assert renew_worker(echo.service, echo.pool, 60, 0, 30) == msg.Done()  # type: ignore[arg-type]
        assert oldest(echo) == spare


def test_a_spare_that_is_killed_costs_nothing(start: Start) -> None:
    with start(ECHO) as echo:
        worker = echo.workers[0]
        spare_of(echo, worker).kill()
        wait_for(lambda: not has_spare(echo))
        assert replaced(echo, worker).create_time() > worker.create_time()
        spare_of(echo, oldest(echo))


def test_a_spare_is_not_used_if_workers_die_soon_again_and_again(start: Start) -> None:
    with start(ECHO | {"option.die_on": "die", "option.migration_timeout": 0}) as echo:
        worker = echo.workers[0]
        for is_used in (True, False):
            spare, before = spare_of(echo, worker), deaths(echo)
            assert echo.ask("die").error is not None
            wait_for_next(echo, before)
            worker = oldest(echo)
            assert (worker == spare) == is_used
