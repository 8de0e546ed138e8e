"""The client of one request that is being answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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
        self.on_gone: Callable[[], object] = _nothing
        """Called when the client closes its connection before it has the whole response."""

    @property
    def has_sent_all(self) -> bool:
        """Whether the whole body is here."""
        return not self._cycle.more_body

    @property
    def has_begun(self) -> bool:
        """Whether the response has begun."""
        return self._cycle.response_started

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

    def cut(self) -> None:
        """Close the connection without the end of the response."""
        cycle = self._cycle
        if not (cycle.response_complete or cycle.disconnected):
            # uvicorn would report as a fault that the application has not ended it.
            cycle.response_complete = True
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


def _nothing() -> None:
    return None
