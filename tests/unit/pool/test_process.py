"""A worker's process: what it prints, as the stub's log gets it, and its end."""

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lmi_backend.pool.command import WorkerCommand
from lmi_backend.pool.process import WorkerProcess, kill_session
from tests.support.waiting import wait_for

# Makes shared memory, says its names, and starts a child that outlives it.
PROGRAM = """
import subprocess, sys, time
from multiprocessing.shared_memory import SharedMemory
both = [SharedMemory(create=True, size=64) for _ in range(2)]
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(*(memory.name for memory in both), child.pid, flush=True)
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
    """With the resource tracker, which would have freed it; what others use stays."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        own, used, number = process.stdout.readline().split()
        child = psutil.Process(int(number))
        # As another worker would; by no means of Python's, whose tracker would free it too.
        with Path("/dev/shm", used).open("r+b") as file, mmap.mmap(file.fileno(), 0):
            kill_session(process.pid)
            assert Path("/dev/shm", used).exists()
        process.wait()
    Path("/dev/shm", used).unlink()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not Path("/dev/shm", own).exists()


def test_shared_memory_of_one_that_has_gone_is_freed() -> None:
    """All of it died at once, as when a container's memory is exhausted."""
    lines: list[str] = []
    process = WorkerProcess(WorkerCommand((sys.executable, "-c", PROGRAM), {}), lines.append)
    wait_for(lambda: lines)
    *names, _ = lines[0].split()
    process.note_shared_memory()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    assert all(Path("/dev/shm", name).exists() for name in names)
    process.kill()
    assert not any(Path("/dev/shm", name).exists() for name in names)


def test_a_group_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait()
    kill_session(process.pid)
