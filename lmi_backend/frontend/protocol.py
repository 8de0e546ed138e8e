"""HTTP/1.1 on one connection: uvicorn's, with bounds of size, time and number."""

from __future__ import annotations

import asyncio
import resource
from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HEAD_BYTES: Final = 1 << 16
"""Of a request line with its headers."""
FAREWELL_SECONDS: Final = 3.0
"""Time that a client has to take leave of a server that ends; with TLS only, which waits for it."""
# Of the descriptors this process may have; the others are for models and for Triton's port.
_SHARE: Final = 0.75
_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


_END: Final = b"\r\n\r\n"
_OK: Final = 200

CLIENT: Final = "lmi_backend.client"
"""Key of an ASGI scope: its `Client`."""


class Client:
    """The client of one request, without a task or a turn of one for what ASGI says by messages.

    Each of them costs more than a part of a streamed response.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self.on_gone: Callable[[], object] = _nothing
        """Called when the client closes its connection before it has the whole response."""
        self.again: Callable[[], bytes | None] = _nothing
        """Returns the whole response to the same request, should it come next; None: ask for it.

        A scraper sends the same bytes twenty times a second, and what a request costs is mostly the
        way through uvicorn.
        """

    @property
    def has_sent_all(self) -> bool:
        """Whether the whole body is here."""
        return not self._cycle.more_body

    @property
    def is_gone(self) -> bool:
        """Whether it has closed its connection before it had the whole response."""
        return self._cycle.disconnected

    @property
    def is_free(self) -> bool:
        """Whether a part can be written now: the response has begun, and its client reads."""
        cycle = self._cycle
        is_open = cycle.chunked_encoding and not (cycle.response_complete or cycle.disconnected)
        return bool(is_open) and not cycle.flow.write_paused

    def write(self, data: bytes) -> None:
        """Write a part of one byte or more, where `is_free`."""
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def response(self, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
        """Return a whole response of status 200, with the headers that all have."""
        lines = [b"%b: %b\r\n" % line for line in (*self._cycle.default_headers, *headers)]
        length = b"content-length: %d\r\n\r\n" % len(body)
        return b"".join((STATUS_LINE[_OK], *lines, length, body))


def _nothing() -> None:
    return None


def bounded_protocol(*, head_seconds: float, idle_seconds: float) -> type[BoundedProtocol]:
    """Return the protocol of the connections of one server.

    Args:
        head_seconds: time that a new connection may take to begin, and each request's headers.
        idle_seconds: time between two requests.
    """
    settings = {"head_seconds": head_seconds, "idle_seconds": idle_seconds, "idle": {}}
    return type("Protocol", (BoundedProtocol,), settings)


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections whose headers never end, that do nothing, or are too many.

    The application bounds the body. When there is no place for another connection the one is closed
    that has done nothing for the longest time; if each has a request, the new one.
    """

    head_seconds: float
    idle_seconds: float
    idle: dict[BoundedProtocol, None]
    """All that have no request, in the order in which that began."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give a new connection time to say what it wants."""
        super().connection_made(transport)
        self._head_bytes = 0
        self._is_in_head = True
        self._is_ending = False
        self._request = b""
        self.idle[self] = None
        self._timer = self.loop.call_later(self.head_seconds, self._give_up)
        if len(self.connections) > resource.getrlimit(resource.RLIMIT_NOFILE)[0] * _SHARE:
            next(iter(self.idle))._give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._timer.cancel()
        self.idle.pop(self, None)
        super().connection_lost(exc)
        if self.cycle is not None and self.cycle.disconnected:
            self.cycle.scope[CLIENT].on_gone()  # type: ignore[typeddict-item]
        # uvicorn's holds on to what was reset until its time is over.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Take bytes; too many before the end of the headers close the connection."""
        if data == self._request and self._answer_again():
            return
        # A whole head and nothing beside it; whether a body belongs to it is seen later.
        is_new = self in self.idle and not (self._is_in_head and self._head_bytes)
        is_head = is_new and data.startswith(b"GET ") and data.find(_END) == len(data) - len(_END)
        self._request = data if is_head else b""
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        # A body that came with its headers is none of them.
        if self._is_in_head and self._head_bytes > HEAD_BYTES:
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def _answer_again(self) -> bool:
        """Answer what was asked before, byte for byte, if the application has said how."""
        cycle = self.cycle
        if (
            self not in self.idle
            or self._is_in_head
            or cycle is None
            or self.transport.is_closing()
        ):
            return False
        # Where a body was announced, these bytes may be it.
        if cycle.more_body or not cycle.keep_alive or cycle.flow.write_paused:
            return False
        client: Client = cycle.scope[CLIENT]  # type: ignore[typeddict-item]
        answer = client.again()
        if answer is None:
            return False
        self.transport.write(answer)
        self.idle[self] = self.idle.pop(self)
        self._unset_keepalive_if_required()
        self._restart(self.idle_seconds)
        return True

    def on_message_begin(self) -> None:
        """Begin to count a request's headers."""
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0
        self._restart(self.head_seconds)

    def on_headers_complete(self) -> None:
        """Let the application have the request."""
        self._is_in_head = False
        self.idle.pop(self, None)
        self._timer.cancel()
        super().on_headers_complete()
        # Its task has not run yet.
        self.cycle.scope[CLIENT] = Client(self.cycle)  # type: ignore[typeddict-unknown-key]

    def shutdown(self) -> None:
        """End after what is being answered, as the server does."""
        self._is_ending = True
        super().shutdown()
        self._end_soon()

    def _end_soon(self) -> None:
        if self._is_ending and self.scheme == "https" and self.transport.is_closing():
            self.loop.call_later(FAREWELL_SECONDS, self.transport.abort)

    def on_response_complete(self) -> None:
        """Wait for the next request; the rest of a body that nobody reads does not prolong it."""
        super().on_response_complete()
        self._end_soon()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.idle[self] = None
            if not self._is_in_head:
                self._restart(self.idle_seconds)

    def _restart(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self.idle.pop(self, None)
        if not self.transport.is_closing():
            self.transport.close()
