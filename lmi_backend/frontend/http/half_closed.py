"""Find out whether a client that sends nothing more waits for its answer, or has left.

Both send the same last segment. Bytes tell them apart: the system of a client that has left answers
them with a reset. So the client gets early the first bytes of what it will be sent anyway: those of
the status line, or zeros before the size of the next chunk, which HTTP allows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections import deque

    from lmi_backend.frontend.http.client import Client

_STATUS_LINE: Final = b"HTTP/1.1 "
_FIRST_SECONDS: Final = 0.02
"""Between the first two probes: the second one meets the reset that the first one causes."""
_FACTOR: Final = 4
_MOST_PROBES: Final = 8
"""The last one comes after 109 s; for clients behind proxies that pass on what they send late."""


class HalfClosed:
    """The transport of a connection whose client sends nothing more; it sends probes.

    Args:
        transport: the connection's.
        clients: those of its requests that are not yet answered, in their order.
    """

    def __init__(self, transport: asyncio.Transport, clients: deque[Client]) -> None:
        self._transport, self._clients = transport, clients
        self._num_ahead = 0
        """Bytes of the status line that the client has."""
        self._num_probes = 0
        self._seconds = _FIRST_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        for client in clients:
            client.write_to(self)
        self._probe()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write a beginning or a part of a response, without what the client has of it."""
        self._transport.write(data[self._num_ahead :])
        self._num_ahead = 0

    def _probe(self) -> None:
        """Send a byte now, and others later; the transport notices the reset."""
        if not self._clients or self._transport.is_closing():
            return
        client = self._clients[0]
        if not client.has_begun:
            self._transport.write(_STATUS_LINE[self._num_ahead : self._num_ahead + 1])
            self._num_ahead += 1
        elif client.is_between_chunks:
            self._transport.write(b"0")
        self._num_probes += 1
        if self._num_probes < _MOST_PROBES:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._probe)
            self._seconds *= _FACTOR

    def stop(self) -> None:
        """Send no more probes."""
        if self._timer is not None:
            self._timer.cancel()
