"""Send frames to a process that may not read: who sends never waits for it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from typing import Final

from lmi_backend.errors import NotSentError
from lmi_backend.threads import guarded_thread

_AT_ONCE: Final = 64
"""Pieces; the kernel takes 1,024 in one call."""


def set_timeout(sock: socket.socket, which: int, seconds: float) -> None:
    """Set a kernel's timeout; Python's own would make the socket non-blocking for both sides.

    Args:
        which: SO_SNDTIMEO or SO_RCVTIMEO.
    """
    whole = int(seconds)
    timeval = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, which, timeval)


class Outbox:
    """The frames for one socket, in the order in which they were sent.

    What the socket does not take at once is sent by a thread, which is started with the first such
    frame.

    Args:
        sock: blocking; it is shut down when something cannot be sent.
        what: the other end's name in errors.
        seconds: for which the other end may take nothing of what waits.
    """

    def __init__(self, sock: socket.socket, what: str, seconds: float) -> None:
        set_timeout(sock, socket.SO_SNDTIMEO, seconds)
        self._socket, self._what = sock, what
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._unsent: deque[memoryview] = deque()
        self._writer: threading.Thread | None = None
        self.unsent_bytes = 0
        """What the other end has not taken yet."""
        self.is_broken = False
        """Whether something could not be sent; nothing can be any more."""

    def send(self, *pieces: bytes) -> None:
        """Send a frame, or keep the part that the socket does not take; never blocks.

        Args:
            pieces: of the frame, in their order.

        Raises:
            NotSentError: the other end is gone; it got nothing of the frame.
        """
        with self._lock:
            if self.is_broken:
                raise NotSentError(f"{self._what} cannot be reached: its connection is closed")
            # What waits leaves first.
            sent = 0 if self._unsent else self._send_now(pieces)
            for piece in pieces:
                if sent < len(piece):
                    self._keep(memoryview(piece)[sent:])
                sent = max(0, sent - len(piece))

    def close(self) -> None:
        """Send nothing more, and end the thread."""
        with self._lock:
            self._break()

    def _send_now(self, pieces: tuple[bytes, ...]) -> int:
        """Return how many bytes the socket took."""
        try:
            return self._socket.sendmsg(pieces[:_AT_ONCE], [], socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._break()
            raise NotSentError(f"{self._what} cannot be reached: {error}") from error

    def _keep(self, rest: memoryview) -> None:
        self._unsent.append(rest)
        self.unsent_bytes += len(rest)
        if self._writer is None:
            self._writer = guarded_thread("lmi-outbox", self._write)
            self._writer.start()
        self._has_work.notify()

    def _break(self) -> None:
        self.is_broken = True
        self._unsent.clear()
        self.unsent_bytes = 0
        self._has_work.notify_all()
        # Half a frame may be on its way: the other end could never read on from there.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        while (frame := self._next()) is not None:
            try:
                self._socket.sendall(frame)
            except BaseException as error:
                # How much was sent is not known; whoever reads the socket sees its end.
                self.close()
                if isinstance(error, OSError):
                    return
                raise
            with self._lock:
                if not self.is_broken:
                    self._unsent.popleft()
                    self.unsent_bytes -= len(frame)

    def _next(self) -> memoryview | None:
        """Wait for what is to be sent; return None when nothing will be."""
        with self._has_work:
            self._has_work.wait_for(lambda: self._unsent or self.is_broken)
            return None if self.is_broken else self._unsent[0]
