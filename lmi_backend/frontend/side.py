"""A second connection to a model's endpoint, for large requests alone.

On one connection, all that follows 60 MB waits for them: 0.2 s. With two, only large requests wait.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeAlias, cast

from lmi_backend import __version__
from lmi_backend.errors import WorkerError
from lmi_backend.frontend.gathered import GatheredTransport
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, Frame, FrameDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Callable


Way: TypeAlias = asyncio.Transport | GatheredTransport
"""What frames are written to."""


class Side(asyncio.Protocol):
    """The second connection.

    Args:
        on_messages: called with messages for requests.
        on_lost: called when the connection is closed.
    """

    def __init__(
        self, on_messages: Callable[[list[msg.ToClient]], None], on_lost: Callable[[], None]
    ) -> None:
        self._on_messages, self._on_lost = on_messages, on_lost
        self._decoder: FrameDecoder[msg.ToClient] = FrameDecoder(msg.ToClient, limit=LARGEST_FRAME)
        self._transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport | None:
        """What writes; None while there is no connection."""
        return self._transport

    def way(self, frame: Frame, usual: Way) -> Way:
        """Return what writes a frame: this for a large one, while it is connected."""
        is_large = len(frame) > 1
        return self._transport or usual if is_large else usual

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the endpoint."""
        # uvloop's is not a subclass.
        self._transport = cast("asyncio.Transport", transport)
        hello = msg.Hello(msg.PROTOCOL, os.getpid(), keeps_ids=True, release=__version__)
        self._transport.write(encode([hello]))

    def data_received(self, data: bytes) -> None:
        """Hand each message on."""
        try:
            messages = self._decoder.feed(data)
        except WorkerError:
            self.close()
            return
        # The first connection hears the same of the model.
        handshake = msg.Welcome | msg.Refused
        self._on_messages([each for each in messages if not isinstance(each, handshake)])

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._on_lost()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def write(transport: Way, frame: Frame) -> None:
    """Write the pieces of a frame without copying them."""
    for piece in frame:
        transport.write(piece)
