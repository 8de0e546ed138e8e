"""The client of one request that is being answered."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

CLIENT: Final = "lmi_backend.client"
"""Key of an ASGI scope: its `Client`."""


class Client:
    """The client of one request, without a task or a turn of one for what ASGI says by messages.

    Each of them costs more than a part of a streamed response.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._ends_at_close = False
        self.on_gone: Callable[[], object] = _nothing
        """Called when the client closes its connection before it has the whole response."""

    @property
    def has_sent_all(self) -> bool:
        """Whether the whole body is here."""
        return not self._cycle.more_body

    @property
    def has_begun(self) -> bool:
        return self._cycle.response_started

    @property
    def is_gone(self) -> bool:
        """Whether it has closed its connection before it had the whole response."""
        return self._cycle.disconnected

    @property
    def is_free(self) -> bool:
        """Whether a part can be written now: the response has begun, and its client reads."""
        cycle = self._cycle
        if cycle.response_complete or cycle.disconnected or not cycle.response_started:
            return False
        has_no_length = cycle.chunked_encoding or self._ends_at_close
        return bool(has_no_length) and not cycle.flow.write_paused

    def unsent(self) -> int:
        """Return the bytes of the response that wait for the client to read."""
        return self._cycle.transport.get_write_buffer_size()

    def belong_to(self, owner: str) -> None:
        """Let what the connection has not sent count for an owner."""
        protocol: Any = self._cycle.transport.get_protocol()
        protocol.owner = owner

    def pass_on(self, data: bytes) -> bool:
        """Write a part of one byte or more if `is_free`; return whether that was so."""
        cycle = self._cycle
        if not cycle.chunked_encoding or not cycle.response_started:
            # The latter is seldom so, and the former is HTTP/1.0, or a response with a length.
            is_free = self.is_free
            if is_free:
                self.write(data)
            return is_free
        if cycle.response_complete or cycle.disconnected or cycle.flow.write_paused:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def write(self, data: bytes) -> None:
        """Write a part of one byte or more, where `is_free`."""
        framed = data if self._ends_at_close else b"%x\r\n%b\r\n" % (len(data), data)
        self._cycle.transport.write(framed)

    def end_at_close(self) -> None:
        """Let the response, which has no length, come without chunks; called before it begins."""
        self._ends_at_close = True
        self._cycle.chunked_encoding = False

    def announce(self, size: int) -> None:
        """Say how many bytes come next of such a response; uvicorn takes them for its length."""
        self._cycle.expected_content_length = size

    def cut(self) -> None:
        """Close the connection without the end of the response."""
        cycle = self._cycle
        if not (cycle.response_complete or cycle.disconnected):
            # uvicorn would report as a fault that the application has not ended it.
            cycle.response_complete = True
            if self._ends_at_close:
                _reset(cycle.transport)
            else:
                cycle.transport.close()

    def leave(self) -> None:
        """Note that the client has closed its connection."""
        cycle = self._cycle
        if not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            self.on_gone()

    def release(self) -> None:
        """Forget the request once it is answered: without this, it is a reference cycle.

        Python looks for cycles after so many objects, however many bytes each of them holds.
        """
        self.on_gone = _nothing
        self._cycle.scope.pop(CLIENT, None)  # type: ignore[typeddict-item]


def _reset(transport: asyncio.Transport) -> None:
    """Close a connection so that its client sees a fault; an ordinary end would be the response's.

    What the system has not sent yet is lost.
    """
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _nothing() -> None:
    return None
