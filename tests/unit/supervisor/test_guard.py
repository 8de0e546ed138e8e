"""What a killed process leaves is removed by its guard."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.run.processes import child
from tests.support.run.waiting import wait_for

# A shell in the place of a worker, which is found by its command line.
TEXT = """
import os, pathlib, subprocess, sys, threading, time
from lmi_backend.supervisor.processes import Traces, guarded
from lmi_backend.supervisor.shared_names import SharedNames
run, prefix = pathlib.Path(sys.argv[1]), sys.argv[2]
with guarded(Traces(run, SharedNames(prefix, -1))):
    argv = ["lmi_backend.worker.main", "-c", "sleep 600; :", str(run)]
    worker = subprocess.Popen(argv, executable="/bin/sh", stdout=subprocess.DEVNULL)
    # As the supervisor does; for a zombie the guard would wait.
    threading.Thread(target=worker.wait, daemon=True).start()
    print(worker.pid, flush=True)
    if len(sys.argv) == 4:
        time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, None])
def test_processes_memory_and_files_are_gone(tmp_path: Path, number: signal.Signals | None) -> None:
    run, prefix = tmp_path / "run", f"lmi_test_{os.getpid()}_"
    (run / "models").mkdir(parents=True)
    region = Path("/dev/shm", f"{prefix}region")
    region.touch()
    command = [sys.executable, "-c", TEXT, str(run), prefix, *(["wait"] if number else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        if number:
            process.send_signal(number)
    wait_for(lambda: not run.exists())
    assert not region.exists()
    assert not psutil.pid_exists(worker)


def test_it_hears_no_signal_that_is_meant_for_what_it_guards(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    command = [sys.executable, "-c", TEXT, str(run), f"lmi_test_{os.getpid()}_", "wait"]
    with child(*command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        guard = wait_for(lambda: _guards(process.pid))[0]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            guard.send_signal(number)
        assert os.getsid(guard.pid) == guard.pid
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    wait_for(lambda: not run.exists())


def _guards(process: int) -> list[psutil.Process]:
    return [each for each in psutil.Process(process).children() if each.name() == "lmi-guard"]
