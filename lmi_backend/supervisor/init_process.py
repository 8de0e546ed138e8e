"""What process 1 of a container has to do, for a `serve` that is started as such."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Final

from lmi_backend.supervisor.stop import stop_signals

_LAST_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


def leave_init_behind() -> None:
    """Continue in a child if this is process 1, which from then on only reaps other processes.

    A process whose parent dies becomes a child of process 1, and stays a zombie until process 1
    waits for it. Call this while this process has one thread.
    """
    if os.getpid() != 1:
        return
    # None is lost while both get ready.
    numbers = stop_signals()
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    child = os.fork()
    if child:
        for number in numbers:
            signal.signal(number, lambda number, _: _send(child, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        os._exit(_reap(child))
    # A terminal's Ctrl-C is for process 1 alone, which hands it on.
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _reap(child: int) -> int:
    """Wait until the child, and every process that it leaves, has exited; return its status."""
    ended = -1
    while ended != child:
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    end = time.monotonic() + _LAST_SECONDS
    # Its guard removes what a killed one has left.
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(_POLL_SECONDS)
    return code if code >= 0 else 128 - code
