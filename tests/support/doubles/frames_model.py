"""A user's handler that breaks the socket between its worker and the stub when it is asked to."""

import os
import socket

BROKEN = {
    "garbage": b"\x05\x00\x00\x00\xc1\xc1\xc1\xc1\xc1",
    "endless": b"\xff\xff\xff\xff",
    "half": b"\x64\x00\x00\x00half of a frame",
}


async def handle(inputs):  # type: ignore[no-untyped-def]
    """Leave every request to the engine, after the damage."""
    if inputs.is_empty():
        return
    text = inputs.get_as_string()
    for how, data in BROKEN.items():
        if how in text:
            connection = _connection()
            connection.setblocking(True)
            connection.sendall(data)
            if how == "half":
                connection.shutdown(socket.SHUT_RDWR)


def _connection() -> socket.socket:
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            candidate = socket.socket(fileno=os.dup(int(name)))
            if str(candidate.getpeername()).endswith(".sock"):
                return candidate
        except OSError:
            continue
    raise LookupError
