"""The pipe into which this worker and its engine print, while nobody reads it.

Its reader is the stub. When that dies, printing raises an error, in the engine's own processes too.
So the worker keeps an end of it open for reading. While there is no stub it also takes out what
does not fit: a process hangs that prints into a full pipe.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import stat
import termios
import threading
from typing import TYPE_CHECKING, Final

from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDOUT: Final = 1
_LOOK_SECONDS: Final = 0.05
# fcntl.F_GETPIPE_SZ, which Python has from 3.10 on.
_PIPE_SIZE: Final = 1032


class OwnOutput:
    """An end for reading of this process's standard output, if that is a pipe."""

    def __init__(self, number: int = _STDOUT) -> None:
        self._end = -1
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self._end = os.open(f"/proc/self/fd/{number}", flags)

    @property
    def is_kept(self) -> bool:
        """Whether what is printed fails for nobody once there is no other reader."""
        return self._end >= 0

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        """Take out what does not fit while the block runs.

        In a thread of its own: this process may hang in its own printing.
        """
        ended = threading.Event()
        thread = guarded_thread("lmi-own-output", lambda: self._make_room(ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _make_room(self, ended: threading.Event) -> None:
        most = fcntl.fcntl(self._end, _PIPE_SIZE) // 2
        while not ended.wait(_LOOK_SECONDS):
            waiting = array.array("i", [0])
            fcntl.ioctl(self._end, termios.FIONREAD, waiting)
            # The next stub gets the rest.
            if waiting[0] > most:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._end, waiting[0])
