"""The names of a server, as clients write them in `Host`."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

ANY: Final = "*"
"""Stands for every name."""
_HOST: Final = re.compile(
    r"(?:(?P<name>[A-Za-z0-9._-]{1,253})"
    r"|\[(?P<address>[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9._~-]{1,32})?)\])"
    r"(?::(?P<port>[0-9]{0,5}))?"
)
_LAST_PORT: Final = 65_535


def name_in(host: str) -> str | None:
    """Return the name or the address in a `Host` header; None for what is no host."""
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 0) > _LAST_PORT:
        return None
    if match["name"] is None:
        return match["address"] if _is_address(match["address"]) else None
    return match["name"].lower().removesuffix(".") or None


class OwnNames:
    """The names of this server.

    A foreign name may lead here too: its owner has a DNS server give this address. A browser then
    treats the page of that name and this server as one site.

    Args:
        given: by an operator (--allowed-hosts); `*` for all.
        listens_on: name or address of --host.
    """

    def __init__(self, given: Collection[str] = (), listens_on: str = "") -> None:
        self.are_given = bool(given)
        """Whether an operator named them."""
        self._has_all = ANY in given
        own = ("localhost", socket.gethostname(), listens_on)
        self._names = {name_in(each) for each in (*given, *own)} - {None}

    def __contains__(self, name: object) -> bool:
        # Nobody else owns an address, or a name below localhost.
        return (
            self._has_all
            or name in self._names
            or (isinstance(name, str) and (name.endswith(".localhost") or _is_address(name)))
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches a port at an address."""
    if host == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
