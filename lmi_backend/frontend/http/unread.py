"""Bound what is written to clients that do not read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

UNREAD_BYTES: Final = 512 << 20
"""Of what all clients together have been sent and have not read."""


def end_unread(connections: Iterable[asyncio.Transport], limit: int = UNREAD_BYTES) -> int:
    """Close the connections whose clients read least, until what waits for all is few enough bytes.

    Returns:
        How many were closed.
    """
    sizes = {each: each.get_write_buffer_size() for each in connections}
    held, closed = sum(sizes.values()), 0
    for each in sorted(sizes, key=lambda one: -sizes[one]):
        if held <= limit:
            break
        each.abort()
        held -= sizes[each]
        closed += 1
    return closed
