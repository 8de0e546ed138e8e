"""A worker's process: what it prints, as the stub's log gets it, and its end."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lmi_backend.pool.command import WorkerCommand
from lmi_backend.pool.process import WorkerProcess, kill_session

# Makes shared memory, says its name, and starts a child that outlives it.
PROGRAM = """
import subprocess, sys, time
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=64)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(memory.name, child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("'x' * 1_000_000", "x" * 8192 + "… (65536 characters)"),
        ("'a\\x1b[2Jb\\u202e'", "a\\x1b[2Jb\\u202e"),
        ("'10 %\\r' * 100_000 + '100 %'", "100 %"),
        ("'x' * 8150 + ' hf_' + 'A' * 40", "x" * 8150 + " ***"),
    ],
    ids=["long", "escape", "progress", "secret at the cut"],
)
def test_a_line_is_cut_and_escaped(printed: str, line: str) -> None:
    code = f"import sys; sys.stdout.reconfigure(encoding='utf-8'); print({printed})"
    lines: list[str] = []
    process = WorkerProcess(WorkerCommand((sys.executable, "-c", code), {}), lines.append)
    assert process.wait(60) == 0
    assert process.last_lines() == line
    assert lines == [line]
    process.kill()


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
