"""The process outside is started for each stub, and ends with it."""

import os
import subprocess
import sys

import psutil

from tests.support.waiting import wait_for

STUB = """
import pathlib, time
from lmi_backend.triton.orphan_guard import start_outside_guard
start_outside_guard("echo", [pathlib.Path("/dev/shm/none")])
print("started", flush=True)
time.sleep(600)
"""


def test_it_is_out_of_reach_of_what_ends_its_server_and_ends_with_the_stub() -> None:
    with subprocess.Popen([sys.executable, "-c", STUB], stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        assert stub.stdout.readline() == "started\n"
        (guard,) = psutil.Process(stub.pid).children()
        assert guard.cmdline()[-2:] == ["echo", "/dev/shm/none"]
        assert guard.pid == os.getsid(guard.pid)
        stub.kill()
    wait_for(lambda: not guard.is_running())
