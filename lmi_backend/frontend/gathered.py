"""A transport that writes once a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

Later: TypeAlias = Callable[[Callable[[], None]], object]


def at_once(function: Callable[[], None]) -> None:
    """Call a function now, where there is no event loop to do it later."""
    function()


class GatheredTransport:
    """Keeps what one turn of the event loop writes, and writes it together.

    Requests come in bursts, as the answers of one step end together. With a write for each, front
    end, stub and worker would each take a system call and a wake-up for it.

    Args:
        transport: what writes.
        later: calls a function at the end of the turn, as an event loop's `call_soon` does.
    """

    def __init__(self, transport: asyncio.Transport, later: Later) -> None:
        self._transport, self._later = transport, later
        self._pieces: list[bytes] = []

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the kernel has not taken, but for those of this turn."""
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        """Write at the end of this turn; nothing is copied."""
        self._pieces.append(data)
        if len(self._pieces) == 1:
            self._later(self._flush)

    def close(self) -> None:
        """Close it, once all is written."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        # uvloop raises where the model has gone meanwhile; what was to leave fails with the rest.
        if not pieces or self._transport.is_closing():
            return
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)
