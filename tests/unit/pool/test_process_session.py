import subprocess
import sys
from pathlib import Path

import psutil

from lmi_backend.pool.process import kill_session

# Makes shared memory, says its name, and starts a child that outlives it.
PROGRAM = """
import subprocess, sys, time
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=64)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(memory.name, child.pid, flush=True)
time.sleep(600)
"""


def test_the_whole_group_ends_and_its_shared_memory_is_freed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        name, number = process.stdout.readline().split()
        child = psutil.Process(int(number))
        kill_session(process.pid)
        process.wait()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not Path("/dev/shm", name).exists()


def test_a_group_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait()
    kill_session(process.pid)
