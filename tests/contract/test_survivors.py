"""A worker outlives its stub, and the next stub of the same `serve` takes it over.

The chaos suite has it with vLLM and real servers.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.ipc.survivor import RETURN_SECONDS, places
from lmi_backend.pool.survivors import memory_left_behind
from lmi_backend.supervisor.processes import lives
from tests.support.run.places import ROOT
from tests.support.run.waiting import wait_for
from tests.support.servers.harness import Harness, started

ECHO: dict[str, Any] = {"option.rolling_batch": "echo", "option.token_seconds": 0.02}
# Serves until it is killed, with a request that takes minutes.
STUB = """
import json, sys
from pathlib import Path
from tests.support.servers.harness import started
with started(json.loads(sys.argv[1]), Path(sys.argv[2])) as engine:
    endless = engine.start("a b c", max_tokens=4000, ignore_eos=True).wait_first()
    if sys.argv[3:] == ["unloads"]:
        engine.pool.end_with_stub()
    print("serves", flush=True)
    endless.wait()
"""


class Stubs:
    """The stubs of one model under one `serve`, one after the other."""

    def __init__(self, folder: Path, run: Path) -> None:
        self.folder, self.run = folder, run
        self.lock = os.open(run, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        self.family: list[psutil.Process] = []

    def end_serve(self) -> None:
        """Do as if `serve` was killed, with its guard."""
        os.close(self.lock)
        self.lock = -1

    def killed(self, *words: str) -> psutil.Process:
        """Start a stub and kill it under a request; return the worker that it leaves."""
        with subprocess.Popen(
            [sys.executable, "-c", STUB, json.dumps(ECHO), str(self.folder), *words],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            # Not what a library has put into this process's own beside Python.
            env=dict(os.environ),
        ) as stub:
            self.family.append(psutil.Process(stub.pid))
            assert stub.stdout is not None
            assert stub.stdout.readline() == b"serves\n"
            (worker,) = self.family[-1].children()
            self.family.append(worker)
            stub.kill()
        return worker

    @contextmanager
    def next(self, **more: Any) -> Iterator[Harness]:
        with started(ECHO | more, self.folder) as engine:
            self.family += engine.workers
            assert engine.ask("one two", max_tokens=2).error is None
            yield engine


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubs]:
    run, folder = tmp_path / "run", tmp_path / "model"
    run.mkdir(mode=0o700)
    folder.mkdir()
    monkeypatch.setenv("LMI_BACKEND_RUN_DIR", str(run))
    made = Stubs(folder, run)
    yield made
    for each in made.family:
        if lives(each):
            each.kill()
    if made.lock >= 0:
        os.close(made.lock)


def pid_of(engine: Harness) -> int:
    (slot,) = engine.pool.slots  # type: ignore[attr-defined]
    assert slot.worker is not None
    return int(slot.worker.pid)


def test_the_next_stub_takes_over_what_a_dead_one_has_left(stubs: Stubs) -> None:
    left = stubs.killed()
    # A plan counts on it: the worker is adopted, or killed before another is launched.
    assert memory_left_behind("model") > 1 << 20
    (place,) = places(stubs.run)
    before = place.read()
    with stubs.next() as engine:
        assert pid_of(engine) == left.pid
        assert engine.service.snapshot().workers[0].is_adopted
        assert memory_left_behind("model") == 0
        # Requests wait for a start as long as one takes, and not as long as this.
        after = place.read()
        assert before is not None
        assert after is not None
        assert after.start_seconds >= before.start_seconds > 0
        assert after.start_seconds == engine.pool.start_seconds  # type: ignore[attr-defined]
        # What the dead one had asked for has ended.
        wait_for(lambda: engine.running() == 0)
        # What it prints is read again.
        wait_for(lambda: any("for the next stub" in line for line in engine.output))
        assert not engine.workers
    # In order all of it ends.
    assert not lives(left)
    assert not [*stubs.run.iterdir()]


def _edit(_: psutil.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The echo engine has no files; which there are of others is known from spares."""
    monkeypatch.setattr("lmi_backend.pool.survivors.files_of", lambda *_: (("a", 1, 1),))


def _nothing(_: psutil.Process, __: pytest.MonkeyPatch) -> None:
    pass


def _kill(worker: psutil.Process, _: pytest.MonkeyPatch) -> None:
    worker.kill()
    wait_for(lambda: not lives(worker))


def _stop(worker: psutil.Process, _: pytest.MonkeyPatch) -> None:
    worker.suspend()


@pytest.mark.parametrize(
    ("change", "more"),
    [(_edit, {}), (_nothing, {"option.max_rolling_batch_size": 100}), (_kill, {}), (_stop, {})],
    ids=["a file", "an option", "it died", "it hangs"],
)
def test_what_does_not_fit_any_more_is_killed_and_another_is_started(
    stubs: Stubs,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[psutil.Process, pytest.MonkeyPatch], None],
    more: dict[str, Any],
) -> None:
    monkeypatch.setattr("lmi_backend.pool.survivors._SECONDS", 1.0)
    left = stubs.killed()
    change(left, monkeypatch)
    with stubs.next(**more) as engine:
        assert pid_of(engine) != left.pid
        assert not lives(left)
        assert not engine.service.snapshot().workers[0].is_adopted
    assert not [*stubs.run.iterdir()]


@pytest.mark.parametrize("how", ["its serve has ended", "a signal"])
def test_what_nobody_takes_over_ends(stubs: Stubs, how: str) -> None:
    left = stubs.killed()
    wait_for(lambda: not _has_stub(left))
    assert lives(left)
    if how == "a signal":
        left.send_signal(signal.SIGTERM)
    else:
        stubs.end_serve()
    wait_for(lambda: not lives(left), RETURN_SECONDS / 2)


def _has_stub(worker: psutil.Process) -> bool:
    return any(each.raddr for each in worker.net_connections("unix"))


def test_a_worker_ends_with_its_stub_where_there_is_no_serve(
    stubs: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LMI_BACKEND_RUN_DIR")
    left = stubs.killed()
    wait_for(lambda: not lives(left), RETURN_SECONDS / 2)


def test_a_worker_ends_with_a_stub_that_is_killed_as_its_model_is_unloaded(stubs: Stubs) -> None:
    left = stubs.killed("unloads")
    wait_for(lambda: not lives(left), RETURN_SECONDS / 2)
    assert not [*places(stubs.run)]
