"""A worker's processes, a session: started here, or taken over from a stub that has died."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import stat
import subprocess
import time
import weakref
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from lmi_backend.ipc.environment import GROUP_VARIABLE
from lmi_backend.ipc.shared_memory import (
    mapped_shared_memory,
    remove_shared_memory,
    remove_unmapped,
)
from lmi_backend.ipc.survivor import session_of
from lmi_backend.pool.command import readable
from lmi_backend.printable import printable
from lmi_backend.redaction import Redactor
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from lmi_backend.ipc.survivor import OneProcess
    from lmi_backend.pool.command import WorkerCommand

_log = logging.getLogger(__name__)

_QUOTED_LINES = 30
# Two tracebacks of an engine: the cause is in the first.
_LAST_LINES = 400
# Engines quote their requests; a line of a megabyte takes Triton's log longer than many tokens.
_LINE_LENGTH = 8192
_READ_BYTES = 1 << 16
# Of a line without an end, which becomes several.
_LONGEST_READ = 1 << 22
# What is killed is gone in milliseconds; what hangs in a driver is not waited for.
_END_SECONDS = 2.0
_POLL_SECONDS = 0.02


class WorkerSession:
    """A worker's process, which leads a session, and all that it has started."""

    def __init__(
        self, pid: int, output: IO[bytes], command: WorkerCommand, on_line: Callable[[str], None]
    ) -> None:
        self.pid = pid
        self.redact = Redactor(command.environment, command.secrets)
        self.shared: set[Path] = set()
        """What its engine has in shared memory, as far as that was seen."""
        self._output, self._on_line = output, on_line
        self._tail: deque[str] = deque(maxlen=_LAST_LINES)
        self._group = command.environment.get(GROUP_VARIABLE, "")
        self._pump = guarded_thread("lmi-output", self._copy_output)
        self._pump.start()

    def wait(self, seconds: float) -> int | None:
        """Return the exit status, negative for a signal; None if it runs after some seconds."""
        raise NotImplementedError

    def note_shared_memory(self) -> None:
        """Look at what the engine has in shared memory, so that it is found after its death."""
        self.shared = mapped_shared_memory(members(self.pid))

    def kill(self) -> None:
        """End the process and everything the engine started, at once.

        What hangs in a driver exits later, and is not waited for.
        """
        kill_session(self.pid, self.shared)
        if self.wait(_END_SECONDS) is None:
            _log.error("process %d was killed and has not exited: it hangs in the kernel", self.pid)
            self._reap_later()
        remove_shared_memory(self._group)

    def _reap_later(self) -> None:
        """Take notice of its exit, if that is for this process to do."""

    def last_lines(self) -> str:
        return "\n".join(self.all_lines().splitlines()[-_QUOTED_LINES:])

    def all_lines(self) -> str:
        """Return what is kept of what it printed, in which a cause may be found."""
        # After its death the rest is in the pipe; a grandchild may hold the pipe open for longer.
        self._pump.join(timeout=0.5)
        return "\n".join(self._tail.copy())

    def _copy_output(self) -> None:
        # Read on whatever a line does: a worker whose pipe is full hangs.
        while raw := self._output.readline(_LONGEST_READ):
            self._copy_line(raw)
        self._output.close()

    def _copy_line(self, raw: bytes) -> None:
        # A progress bar draws over its line; only the last drawing counts.
        text = raw.rstrip().rpartition(b"\r")[2][:_READ_BYTES].decode("utf-8", "replace")
        # Cut last: a secret that is cut is not found.
        line = printable(self.redact(readable(text)), _LINE_LENGTH)
        if line:
            self._tail.append(line)
            self._on_line(line)


def kill_session(leader: int, shared: Collection[Path] = ()) -> None:
    """End every process of a session, and remove what nobody else maps of their shared memory.

    The session, not the process group: mpirun gives each rank a group of its own. Python's resource
    trackers would remove most of the memory, when they get the time before they are killed.

    Args:
        shared: files that were seen to be the session's before some of it had gone.
    """
    left = set(shared)
    end = time.monotonic() + _END_SECONDS
    while (living := members(leader)) and time.monotonic() < end:
        left |= mapped_shared_memory(living)
        # Trackers first: one that sees its parent die would remove what others use. None is
        # stopped for it: if this process dies meanwhile, a stopped one would never end.
        for pid in sorted(living, key=_is_tracker, reverse=True):
            _send(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
    remove_unmapped(left)


def members(leader: int) -> list[int]:
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in numbers if session_of(pid) == leader]


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


_UNKNOWN: Final = 1 << 16
"""Stands for an exit status that only another process, its parent, learns."""


class WorkerProcess(WorkerSession):
    """Runs a command as leader of its own session, and hands each line it prints to `on_line`.

    Its own session, because the stub shares tritonserver's process group: a signal to that group
    must not reach the engine before the stub has dealt with its requests.
    """

    def __init__(self, command: WorkerCommand, on_line: Callable[[str], None]) -> None:
        self._process = subprocess.Popen(  # noqa: S603  the plan's own interpreter
            command.argv,
            env=dict(command.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        output = self._process.stdout
        assert output is not None  # noqa: S101  as it was asked for
        super().__init__(self._process.pid, output, command, on_line)

    def wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _reap_later(self) -> None:
        guarded_thread("lmi-reap", self._process.wait).start()


class AdoptedProcess(WorkerSession):
    """A worker that another process has started, which has died.

    Raises:
        OSError: it has exited, or its output cannot be read.
    """

    def __init__(
        self,
        process: OneProcess,
        shared: Iterable[str],
        command: WorkerCommand,
        on_line: Callable[[str], None],
    ) -> None:
        self._descriptor = os.pidfd_open(process.pid)
        weakref.finalize(self, os.close, self._descriptor)
        if not process.lives:
            raise ProcessLookupError(f"process {process.pid} has exited")
        super().__init__(process.pid, _output_of(process.pid), command, on_line)
        self.shared = set(map(Path, shared))

    def wait(self, seconds: float) -> int | None:
        """Return what stands for its exit status, or None if it still runs."""
        ended = select.poll()
        ended.register(self._descriptor, select.POLLIN)
        return _UNKNOWN if ended.poll(seconds * 1000) else None


def _output_of(pid: int) -> IO[bytes]:
    path = f"/proc/{pid}/fd/1"
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        raise OSError(f"{path} is no pipe")
    # Without waiting for somebody who writes: it may exit just now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def describe_exit(status: int | None) -> str:
    if status is None:
        return "closed its socket"
    if status == _UNKNOWN:
        return "ended"
    if status < 0:
        return f"was killed by {_signal_name(-status)}"
    return f"exited with status {status}"


def _signal_name(number: int) -> str:
    """Return the name of a signal; of real-time signals only the first and last have one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
