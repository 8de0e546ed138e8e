"""The socket on which the front end listens."""

from __future__ import annotations

import socket
from typing import Final

from lmi_backend.errors import ConfigurationError

BACKLOG: Final = 2048
"""Connections that wait to be accepted."""


def listen(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: address, or a name of this machine.
        port: of TCP.
        is_shared: whether other processes listen at the same port; else it must be free.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        message = f"the front end cannot listen on {host}:{port}: {error}"
        raise ConfigurationError(message) from error
    return listener
