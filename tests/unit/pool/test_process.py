"""A worker's process: what it prints, as the stub's log gets it, and its end."""

import contextlib
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lmi_backend.ipc.survivor import OneProcess
from lmi_backend.pool.command import WorkerCommand
from lmi_backend.pool.process import AdoptedProcess, WorkerProcess, describe_exit, kill_session
from tests.support.run.waiting import HANG_SECONDS, wait_for

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
    assert process.wait(HANG_SECONDS) == 0
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


def test_who_dies_while_it_ends_a_session_leaves_none_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tracker goes first instead: it is not there to see its parent die."""
    sent: list[tuple[str, signal.Signals]] = []

    def send(pid: int, number: signal.Signals) -> None:
        # One that has just ended has no words any more.
        with contextlib.suppress(psutil.Error):
            sent.append((" ".join(psutil.Process(pid).cmdline()), number))
        os.kill(pid, number)

    monkeypatch.setattr("lmi_backend.pool.process._send", send)
    lines: list[str] = []
    process = WorkerProcess(WorkerCommand((sys.executable, "-c", PROGRAM), {}), lines.append)
    wait_for(lambda: lines)
    process.kill()
    assert {number for _, number in sent} == {signal.SIGKILL}
    assert "resource_tracker" in sent[0][0]
    for name in lines[0].split()[:2]:
        Path("/dev/shm", name).unlink(missing_ok=True)


def test_shared_memory_of_one_that_has_gone_is_freed() -> None:
    """All of it died at once, as when a container's memory is exhausted."""
    lines: list[str] = []
    process = WorkerProcess(WorkerCommand((sys.executable, "-c", PROGRAM), {}), lines.append)
    wait_for(lambda: lines)
    *names, _ = lines[0].split()
    process.note_shared_memory()
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(HANG_SECONDS)
    assert all(Path("/dev/shm", name).exists() for name in names)
    process.kill()
    assert not any(Path("/dev/shm", name).exists() for name in names)


def test_what_ends_before_its_signal_comes_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    # No process has such a number.
    looks = [[1 << 22], []]
    monkeypatch.setattr("lmi_backend.pool.process.members", lambda _: looks.pop(0))
    kill_session(1)
    assert looks == []


def test_one_that_hangs_in_the_kernel_is_not_waited_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmi_backend.pool.process._send", lambda *_: None)
    monkeypatch.setattr("lmi_backend.pool.process._END_SECONDS", 0.1)
    code = "import time; time.sleep(600)"
    process = WorkerProcess(WorkerCommand((sys.executable, "-c", code), {}), print)
    process.kill()
    assert process.wait(0) is None
    assert f"process {process.pid} was killed and has not exited" in caplog.text
    # It is reaped when it ends.
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(process.pid))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "closed its socket"),
        (3, "exited with status 3"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (-(signal.SIGRTMIN + 5), f"was killed by signal {signal.SIGRTMIN + 5}"),
    ],
)
def test_any_end_is_described(status: int | None, words: str) -> None:
    assert describe_exit(status) == words


def test_a_line_that_cannot_be_logged_does_not_keep_the_next(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmi_backend.threads.PAUSE_SECONDS", 0.01)
    lines: list[str] = []

    def on_line(line: str) -> None:
        if line == "bad":
            raise TypeError("a bug")
        lines.append(line)

    code = "print('good'); print('bad'); print('last')"
    process = WorkerProcess(WorkerCommand((sys.executable, "-c", code), {}), on_line)
    wait_for(lambda: lines == ["good", "last"])
    process.kill()
    assert "TypeError: a bug" in caplog.text


# Prints a line whenever it gets a signal, and holds its own pipe open for reading, as workers do.
PRINTER = """
import os, signal
end = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print("ready", flush=True)
while signal.sigwait([signal.SIGUSR1]):
    print("a line with " + os.environ["API_KEY"], flush=True)
"""


def test_what_another_process_has_started_is_taken_over() -> None:
    """Its output, without its secrets, its end, and all that it has started."""
    environment = {"API_KEY": "0123456789-key"}
    with subprocess.Popen(
        [sys.executable, "-c", PRINTER],
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        started.stdout.close()
        lines: list[str] = []
        command = WorkerCommand((), environment)
        process = AdoptedProcess(OneProcess.of(started.pid), [], command, lines.append)
        started.send_signal(signal.SIGUSR1)
        wait_for(lambda: lines == ["a line with ***"])
        assert process.wait(0) is None
        process.kill()
        assert describe_exit(process.wait(HANG_SECONDS)) == "ended"
        assert process.last_lines() == "a line with ***"


def test_a_later_process_of_the_same_number_is_not_taken_over() -> None:
    own = OneProcess.of(os.getpid())
    earlier = OneProcess(own.pid, own.started - 1)
    assert (own.lives, own.is_replaced) == (True, False)
    assert (earlier.lives, earlier.is_replaced) == (False, True)
    with pytest.raises(ProcessLookupError):
        AdoptedProcess(earlier, [], WorkerCommand((), {}), print)
