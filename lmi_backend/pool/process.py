"""A worker's operating-system process: its session, its output, its end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_backend.ipc.environment import GROUP_VARIABLE
from lmi_backend.ipc.shared_memory import (
    mapped_shared_memory,
    remove_shared_memory,
    remove_unmapped,
)
from lmi_backend.pool.mpirun import readable
from lmi_backend.printable import printable
from lmi_backend.redaction import Redactor
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lmi_backend.pool.command import WorkerCommand

_log = logging.getLogger(__name__)

_SHOWN_LINES = 30
# Two tracebacks of an engine: the cause is in the first.
_KEPT_LINES = 400
# Engines quote their requests; a line of a megabyte takes Triton's log longer than many tokens.
_LINE_LENGTH = 8192
_READ_BYTES = 1 << 16
# Of a line without an end, which becomes several.
_LONGEST_READ = 1 << 22
# What is killed is gone in milliseconds; what hangs in a driver is not waited for.
_END_SECONDS = 2.0
_POLL_SECONDS = 0.02


class WorkerProcess:
    """Runs a command as leader of its own session, and hands each line it prints to `on_line`.

    Its own session, because the stub shares tritonserver's process group: a signal to that group
    must not reach the engine before the stub has dealt with its requests.
    """

    def __init__(self, command: WorkerCommand, on_line: Callable[[str], None]) -> None:
        self._tail: deque[str] = deque(maxlen=_KEPT_LINES)
        self._on_line = on_line
        self.redact = Redactor(command.environment, command.secrets)
        self._group = command.environment.get(GROUP_VARIABLE, "")
        self._shared: set[Path] = set()
        self._process = subprocess.Popen(  # noqa: S603  the plan's own interpreter
            command.argv,
            env=dict(command.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._pump = guarded_thread("lmi-output", self._copy_output)
        self._pump.start()

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """Return the exit status, or None if it still runs after some seconds."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def note_shared_memory(self) -> None:
        """Look at what the engine has in shared memory, so that it is found after its death."""
        self._shared = mapped_shared_memory(_members(self.pid))

    def kill(self) -> None:
        """End the process and everything the engine started, at once.

        What hangs in a driver exits later, and is not waited for.
        """
        kill_session(self.pid, self._shared)
        if self.wait(_END_SECONDS) is None:
            _log.error("process %d was killed and has not exited: it hangs in the kernel", self.pid)
            guarded_thread("lmi-reap", self._process.wait).start()
        remove_shared_memory(self._group)

    def last_lines(self) -> str:
        """Return the end of what it printed, for people."""
        return "\n".join(self.kept_lines().splitlines()[-_SHOWN_LINES:])

    def kept_lines(self) -> str:
        """Return what is kept of what it printed, in which a cause may be found."""
        # After its death the rest is in the pipe; a grandchild may hold the pipe open for longer.
        self._pump.join(timeout=0.5)
        return "\n".join(self._tail.copy())

    def _copy_output(self) -> None:
        pipe = self._process.stdout
        if pipe is None:
            return
        # Read on whatever a line does: a worker whose pipe is full hangs.
        while raw := pipe.readline(_LONGEST_READ):
            self._copy_line(raw)
        pipe.close()

    def _copy_line(self, raw: bytes) -> None:
        # A progress bar draws over its line; only the last drawing counts.
        text = raw.rstrip().rpartition(b"\r")[2][:_READ_BYTES].decode("utf-8", "replace")
        # Cut last: a secret that is cut is not found.
        line = printable(self.redact(readable(text)), _LINE_LENGTH)
        if line:
            self._tail.append(line)
            self._on_line(line)


def describe_exit(status: int | None) -> str:
    """Say how a process exited."""
    if status is None:
        return "closed its socket"
    if status < 0:
        return f"was killed by {_signal_name(-status)}"
    return f"exited with status {status}"


def _signal_name(number: int) -> str:
    """Return the name of a signal; of real-time signals only the first and last have one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def kill_session(leader: int, shared: Collection[Path] = ()) -> None:
    """End every process of a session, and remove what nobody else maps of their shared memory.

    The session, not the process group: mpirun gives each rank a group of its own. Python's resource
    trackers would remove most of the memory, when they get the time before they are killed.

    Args:
        leader: the session's process id.
        shared: files that were seen to be the session's before some of it had gone.
    """
    left = set(shared)
    end = time.monotonic() + _END_SECONDS
    while (members := _members(leader)) and time.monotonic() < end:
        left |= mapped_shared_memory(members)
        # Trackers first: one that sees its parent die would remove what others use. None is
        # stopped for it: if this process dies meanwhile, a stopped one would never end.
        for pid in sorted(members, key=_is_tracker, reverse=True):
            _send(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    remove_unmapped(left)


def _members(leader: int) -> list[int]:
    """Return the living processes of a session."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_alive_in(entry, leader)
    ]


def _is_alive_in(entry: Path, leader: int) -> bool:
    try:
        # The name, in parentheses, may hold blanks: fields count from the last one.
        state, _, _, session = (
            (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:4]
        )
    except (OSError, ValueError):
        return False
    return int(session) == leader and state not in "ZX"


def _is_tracker(pid: int) -> bool:
    """Return whether a process is one of Python's resource trackers."""
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
