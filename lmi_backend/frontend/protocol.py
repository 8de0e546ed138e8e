"""HTTP/1.1 on one connection: uvicorn's, with bounds of size and time for what comes first."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

HEAD_BYTES: Final = 1 << 16
"""Of a request line with its headers."""
HEAD_SECONDS: Final = 30.0
"""Time that these may take, and a new connection to begin."""
FAREWELL_SECONDS: Final = 3.0
"""Time that a client has to take leave of a server that ends; with TLS only, which waits for it."""
_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


DIRECT: Final = "lmi_backend.direct"
"""Key of an ASGI scope: its `DirectWriter`."""


class DirectWriter:
    """Writes parts of a streamed response without a turn of the request's task.

    ASGI's way wakes the task for each part, which costs more than the part.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def is_free(self) -> bool:
        """Whether a part can be written now: the response has begun, and its client reads."""
        cycle = self._cycle
        is_open = cycle.chunked_encoding and not (cycle.response_complete or cycle.disconnected)
        return bool(is_open) and not cycle.flow.write_paused

    def write(self, data: bytes) -> None:
        """Write a part of one byte or more, where `is_free`."""
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections whose headers never end; the application bounds the body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give a new connection time to say what it wants."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._is_in_head = True
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)
        self._is_ending = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; too many before the end of the headers close the connection."""
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # A body that came with its headers is none of them.
        if self._is_in_head and self._head_bytes > HEAD_BYTES:
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Begin to count a request's headers."""
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0
        self._timer.cancel()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        """Let the application have the request."""
        self._is_in_head = False
        self._timer.cancel()
        super().on_headers_complete()
        # Its task has not run yet.
        self.cycle.scope[DIRECT] = DirectWriter(self.cycle)  # type: ignore[typeddict-unknown-key]

    def on_response_complete(self) -> None:
        """Go on with the next request, or end with the server."""
        super().on_response_complete()
        self._end_soon()

    def shutdown(self) -> None:
        """End after what is being answered, as the server does."""
        self._is_ending = True
        super().shutdown()
        self._end_soon()

    def _end_soon(self) -> None:
        if self._is_ending and self.scheme == "https" and self.transport.is_closing():
            self.loop.call_later(FAREWELL_SECONDS, self.transport.abort)

    def _give_up(self) -> None:
        if self._is_in_head and not self.transport.is_closing():
            self.transport.close()
