"""What one turn of the event loop writes leaves at its end, on the event loop that serves."""

import asyncio
import socket

import pytest

from lmi_backend.frontend.connection import BatchedTransport


async def _connected(own: socket.socket) -> BatchedTransport:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_unix_connection(asyncio.Protocol, sock=own)
    return BatchedTransport(transport, loop.call_soon)


def _pair() -> tuple[socket.socket, socket.socket]:
    own, other = socket.socketpair()
    own.setblocking(False)
    other.setblocking(False)
    return own, other


async def test_what_one_turn_writes_leaves_at_its_end_in_its_order() -> None:
    own, other = _pair()
    with other:
        transport = await _connected(own)
        for piece in (b"one ", b"", b"two ", b"three"):
            transport.write([piece])
        with pytest.raises(BlockingIOError):
            other.recv(100)
        await asyncio.sleep(0)
        assert other.recv(100) == b"one two three"
        transport.write([b"four"])
        await asyncio.sleep(0)
        assert other.recv(100) == b"four"
        transport.write([b"last"])
        transport.close()
        await asyncio.sleep(0)
        assert other.recv(100) == b"last"


async def test_what_is_to_leave_when_the_other_end_has_gone_is_dropped() -> None:
    errors: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    own, other = _pair()
    other.close()
    transport = await _connected(own)
    transport.write([b"a"])
    transport.abort()
    for _ in range(4):
        await asyncio.sleep(0)
    assert not errors
