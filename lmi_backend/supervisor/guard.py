"""Remove what a server leaves, even if this process is killed and cannot do it itself.

A process waits for that. If it is killed too, the kernel kills the server, whose stubs and workers
end by themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.supervisor.traces import Traces

NAME: Final = "lmi-guard"
"""Name of the process that waits; at most 15 bytes (proc(5), comm)."""
_SET_DEATH_SIGNAL: Final = 1
_libc = ctypes.CDLL(None)
_libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong]


def end_with(parent: int) -> None:
    """Let the kernel kill this process with the thread that has made it.

    For a child, before it loads a program.

    Args:
        parent: the process id of the parent, which may have died meanwhile.
    """
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


@contextlib.contextmanager
def guarded(traces: Traces) -> Iterator[None]:
    """Remove all traces when the block or this process stops, however it stops.

    Forks: call it while this process has one thread.
    """
    guard_end, own_end = os.pipe()
    guard = os.fork()
    if guard == 0:
        _guard(guard_end, own_end, traces)
    os.close(guard_end)
    try:
        yield
    finally:
        os.close(own_end)
        os.waitpid(guard, 0)


def _guard(own: int, other: int, traces: Traces) -> None:
    """Wait until nobody holds the other end of the pipe; then end everything."""
    try:
        # Out of reach of a terminal's Ctrl-C and of a signal to the process group.
        os.setsid()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(each, signal.SIG_IGN)
        Path("/proc/self/comm").write_text(NAME, encoding="ascii")
        os.close(other)
        os.read(own, 1)
        traces.end()
    finally:
        os._exit(0)
