"""The signals by which a user stops a server, and what process 1 of a container does besides."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_MOST: Final = 4096


class StopSignals:
    """Counts signals: the first requests a stop, the second an immediate one.

    Args:
        on_hangup: whether SIGHUP requests a stop. It is also what rotation of logs sends.

    Python writes the number of each signal into a pipe as it arrives (`signal.set_wakeup_fd`). So
    none is lost while this process is busy.
    """

    def __init__(self, *, on_hangup: bool = True) -> None:
        self._numbers = [each for each in _NUMBERS if on_hangup or each != signal.SIGHUP]
        self._signals, self._pipe = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(self._pipe, False)
        self._lock = threading.Lock()
        self._count = 0
        self._interrupts = False

    @property
    def is_requested(self) -> bool:
        return self._counted() > 0

    @property
    def is_urgent(self) -> bool:
        return self._counted() > 1

    def wait(self, seconds: float) -> bool:
        if not self.is_requested:
            select.select([self._signals], [], [], seconds)
        return self.is_requested

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Let a signal raise KeyboardInterrupt in the block, which nothing else could end."""
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals in the block, which is in the main thread.

        SIGHUP stays ignored where it was.
        """
        handlers = {number: signal.signal(number, self._handle) for number in stop_signals()}
        earlier_pipe = signal.set_wakeup_fd(self._pipe, warn_on_full_buffer=False)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(earlier_pipe)

    def _handle(self, number: int, _: Any) -> None:
        if self._interrupts and number in self._numbers:
            raise KeyboardInterrupt

    def _counted(self) -> int:
        with self._lock, contextlib.suppress(BlockingIOError):
            self._count += sum(each in self._numbers for each in os.read(self._signals, _MOST))
        return self._count


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop this process: not SIGHUP where `nohup` has it ignored.

    A shell ignores SIGINT and SIGQUIT in what a script starts in the background. Here they count: a
    user who sends them to a server means it.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in _NUMBERS if number != signal.SIGHUP or not is_ignored]


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
