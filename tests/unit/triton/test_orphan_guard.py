"""The process outside is started for a stub of a plain tritonserver, and ends with the stub."""

import os
import subprocess
import sys

import psutil
import pytest

from tests.support.waiting import wait_for

STUB = """
import pathlib, time
from lmi_backend.triton.orphan_guard import start_outside_guard
start_outside_guard("echo", [pathlib.Path("/dev/shm/none")])
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("run_folder", "count"), [("", 1), ("/run/lmi", 0)])
def test_it_is_there_where_no_serve_does_the_same(
    run_folder: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMI_BACKEND_RUN_DIR", run_folder)
    with subprocess.Popen([sys.executable, "-c", STUB], stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        assert stub.stdout.readline() == "started\n"
        guards = psutil.Process(stub.pid).children()
        assert [each.cmdline()[-2:] for each in guards] == [["echo", "/dev/shm/none"]] * count
        # Not in reach of a signal to the group of the server.
        assert not [each for each in guards if each.pid != os.getsid(each.pid)]
        stub.kill()
    wait_for(lambda: not [each for each in guards if each.is_running()])
