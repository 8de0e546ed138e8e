"""Bound what is written to clients that do not read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from lmi_backend.shares import Shares

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

UNREAD_BYTES: Final = 512 << 20
"""Of what all clients together have been sent and have not read."""


class _Connection(Protocol):
    @property
    def owner(self) -> str: ...
    @property
    def transport(self) -> asyncio.Transport: ...


def end_unread(connections: Iterable[_Connection], limit: int = UNREAD_BYTES) -> int:
    """Close connections until what waits for all is few enough bytes.

    Each is the one whose client reads least, of the key for which most waits.

    Returns:
        How many were closed.
    """
    unread: Shares[asyncio.Transport] = Shares()
    for each in connections:
        unread.add(each.transport, each.transport.get_write_buffer_size(), each.owner)
    closed = list(unread.excess(limit))
    for transport in closed:
        transport.abort()
    return len(closed)
