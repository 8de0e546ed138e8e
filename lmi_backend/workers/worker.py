"""A worker that is ready, as the stub sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lmi_backend.errors import ConnectionLostError, WorkerError
from lmi_backend.workers import messages as msg
from lmi_backend.workers.connection import POLL_SECONDS
from lmi_backend.workers.frames import encode
from lmi_backend.workers.process import WorkerProcess, describe_exit

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import Capabilities
    from lmi_backend.workers.ranks import Ranks

_ERROR: Final = 400  # the first HTTP status that is one


class Worker:
    """A worker that is ready. `start_worker` makes one."""

    def __init__(
        self, name: str, process: WorkerProcess, ranks: Ranks, capabilities: Capabilities
    ) -> None:
        self.name = name
        self.capabilities = capabilities
        self._process, self._ranks = process, ranks

    @property
    def pid(self) -> int:
        """Process id, mpirun's for a group of ranks; its session has the same."""
        return self._process.pid

    def send(self, *messages: msg.ToWorker) -> None:
        """Send from any thread.

        Raises:
            ConnectionLostError: the worker is gone or does not read.
        """
        self._ranks.send(encode(messages))

    def send_frame(self, frame: bytes) -> None:
        """Send messages that `encode` has packed; otherwise like `send`."""
        self._ranks.send(frame)

    def read(self) -> list[msg.FromWorker]:
        """Block for the next messages.

        Raises:
            WorkerError: the worker is gone, silent, or cannot be understood.
        """
        return [self._redacted(message) for message in self._ranks.read()]

    def stop(self, seconds: float) -> None:
        """Ask it to end, and make it after some seconds."""
        try:
            self._ranks.send_all(encode([msg.Stop()]))
            self._process.wait(seconds)
        except ConnectionLostError:
            pass
        finally:
            self.kill()

    def kill(self) -> None:
        """End it and all it started, at once."""
        self._process.kill()
        self._ranks.close()

    def bury(self, error: WorkerError) -> str:
        """End what is left of a dead worker; return how it died, which began with `error`."""
        status = self._process.wait(POLL_SECONDS)
        self.kill()
        if isinstance(error, ConnectionLostError):
            return describe_exit(status)
        return f"was ended: {error}" if status is None else f"{describe_exit(status)}: {error}"

    def _redacted(self, message: msg.FromWorker) -> msg.FromWorker:
        """Return a message as a client may read it: an error may quote an address with its key."""
        redact = self._process.redact
        match message:
            case msg.Failure(message=text):
                return msgspec.structs.replace(message, message=redact(text))
            case msg.Part(piece=piece) if piece.status >= _ERROR:
                body = redact(piece.data.decode("utf-8", "surrogateescape"))
                data = body.encode("utf-8", "surrogateescape")
                return msgspec.structs.replace(
                    message, piece=msgspec.structs.replace(piece, data=data)
                )
            case _:
                return message
