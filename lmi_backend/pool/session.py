"""The session of a worker: its processes, their output, their end."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections import deque
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lmi_backend.ipc.environment import GROUP_VARIABLE
from lmi_backend.ipc.shared_memory import (
    mapped_shared_memory,
    remove_shared_memory,
    remove_unmapped,
)
from lmi_backend.ipc.survivor import session_of
from lmi_backend.pool.mpirun import readable
from lmi_backend.printable import printable
from lmi_backend.redaction import Redactor
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

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
    """A worker's process, which leads a session, and all that it has started.

    Args:
        command: by which it was started; it says what must not be shown.
    """

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

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or None while it runs."""
        return self.wait(0)

    def wait(self, seconds: float) -> int | None:
        """Return the exit status, or None if it still runs after some seconds."""
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
        """Return the end of what it printed, for people."""
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
        leader: the session's process id.
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
