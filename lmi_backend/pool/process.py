"""A worker's operating-system process: started here, or taken over from a stub that has died."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from lmi_backend.pool.session import WorkerSession
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmi_backend.ipc.survivor import OneProcess
    from lmi_backend.pool.command import WorkerCommand

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

    def poll(self) -> int | None:
        return self._process.poll()

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
