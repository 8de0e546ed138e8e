"""The stub's end of one socket to a worker."""

from __future__ import annotations

import socket
from typing import Final

from lmi_backend.errors import ConnectionLostError, WorkerError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import FrameDecoder, Outbox, receive, set_timeout

POLL_SECONDS: Final = 0.2
SILENCE_SECONDS: Final = 30
"""A worker beats every second; an event loop silent for this long does not come back."""
UNSENT_BYTES: Final = 256 << 20
"""That a worker has not taken; with more it gets no further requests."""

_BEAT_SECONDS = 1


class Connection(Outbox):
    """A blocking socket that one thread reads, and to which any thread sends without waiting."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        super().__init__(sock, "the worker", SILENCE_SECONDS)
        sock.setblocking(True)
        if sock.family != socket.AF_UNIX:
            # Tokens are small and must not wait for more.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder: FrameDecoder[msg.FromWorker] = FrameDecoder(msg.FromWorker, limit=limit)
        self._is_ready = False
        set_timeout(sock, socket.SO_RCVTIMEO, POLL_SECONDS)

    def fileno(self) -> int:
        return self.socket.fileno()

    def expect_beats(self) -> None:
        """Treat silence as a fault from now on."""
        self._is_ready = True
        set_timeout(self.socket, socket.SO_RCVTIMEO, _BEAT_SECONDS)

    def read(self) -> list[msg.FromWorker]:
        """Block for the next messages; before `expect_beats`, return none after a while.

        Raises:
            WorkerError: the worker is gone, silent, or cannot be understood.
        """
        # Second by second: when the whole machine stood still, that is one second to both.
        for _ in range(SILENCE_SECONDS):
            try:
                return receive(self.socket, self._decoder)
            except BlockingIOError:
                if not self._is_ready:
                    return []
            except OSError as error:
                raise ConnectionLostError(f"the worker's socket failed: {error}") from error
        raise WorkerError(f"the worker sent nothing for {SILENCE_SECONDS} s")

    def close(self) -> None:
        super().close()
        self.socket.close()
