"""The stub's end of one socket to a worker."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Final

from lmi_backend.errors import ConnectionLostError, NotSentError, WorkerError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, receive

POLL_SECONDS: Final = 0.2
SILENCE_SECONDS: Final = 30
"""A worker beats every second; an event loop silent for this long does not come back."""

_SEND_SECONDS = 10
_BEAT_SECONDS = 1


class Connection:
    """A blocking socket that one thread reads and any thread writes."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        sock.setblocking(True)
        if sock.family != socket.AF_UNIX:
            # Tokens are small and must not wait for more.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._decoder: FrameDecoder[msg.FromWorker] = FrameDecoder(msg.FromWorker, limit=limit)
        self._lock = threading.Lock()
        self._is_ready = False
        self.is_broken = False
        """Whether something could not be sent; nothing can be any more."""
        # Kernel timeouts, not Python's: those would make the socket non-blocking for both ends.
        self._set_timeout(socket.SO_SNDTIMEO, _SEND_SECONDS)
        self._set_timeout(socket.SO_RCVTIMEO, POLL_SECONDS)

    def fileno(self) -> int:
        """Return the socket's number, for poll."""
        return self._socket.fileno()

    def expect_beats(self) -> None:
        """Treat silence as a fault from now on."""
        self._is_ready = True
        self._set_timeout(socket.SO_RCVTIMEO, _BEAT_SECONDS)

    def send(self, frame: bytes) -> None:
        """Send messages that `encode` has packed.

        Raises:
            NotSentError: the worker is gone or does not read, and got nothing of them.
            ConnectionLostError: it may have got some of them.
        """
        sent = 0
        try:
            with self._lock:
                sent = self._socket.send(frame)
                if sent < len(frame):
                    self._socket.sendall(memoryview(frame)[sent:])
        except OSError as error:
            self.is_broken = True
            # Half a frame may be on its way: the worker could never read on from there.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            kind = ConnectionLostError if sent else NotSentError
            raise kind(f"the worker cannot be reached: {error}") from error

    def read(self) -> list[msg.FromWorker]:
        """Block for the next messages; before `expect_beats`, return none after a while.

        Raises:
            WorkerError: the worker is gone, silent, or cannot be understood.
        """
        # Second by second: when the whole machine stood still, that is one second to both.
        for _ in range(SILENCE_SECONDS):
            try:
                return receive(self._socket, self._decoder)
            except BlockingIOError:
                if not self._is_ready:
                    return []
            except OSError as error:
                raise ConnectionLostError(f"the worker's socket failed: {error}") from error
        raise WorkerError(f"the worker said nothing for {SILENCE_SECONDS} s")

    def close(self) -> None:
        """Close the socket; the worker ends."""
        self._socket.close()

    def _set_timeout(self, which: int, seconds: float) -> None:
        whole = int(seconds)
        timeval = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, which, timeval)
