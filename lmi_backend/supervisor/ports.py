"""Where a server listens."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""Addresses that stand for all of this machine, and what a client here connects to."""


@dataclass(frozen=True)
class Ports:
    host: str
    """Where Triton's own ports listen: an address, or a name of this machine."""
    http: int
    grpc: int
    metrics: int

    @property
    def url(self) -> str:
        return url_of(self.host, self.http)

    @property
    def metrics_url(self) -> str:
        return f"{url_of(self.host, self.metrics)}/metrics"

    def arguments(self) -> list[str]:
        """Return the arguments of tritonserver; it knows no names, and marks IPv6 in two ways."""
        address = _resolved(self.host, 0)[1][0]
        http, grpc = (f"ipv6:{address}", f"[{address}]") if ":" in address else (address, address)
        return [
            f"--http-address={http}",
            f"--http-port={self.http}",
            f"--grpc-address={grpc}",
            f"--grpc-port={self.grpc}",
            f"--metrics-address={http}",
            f"--metrics-port={self.metrics}",
        ]

    def check(self, others: Mapping[str, int]) -> None:
        """Raise ConfigurationError if a port is in use or given twice; `others` go by option."""
        own = {f"--{each}-port": getattr(self, each) for each in ("http", "grpc", "metrics")}
        for (name, port), (other, same) in combinations({**own, **others}.items(), 2):
            if port and port == same:
                raise ConfigurationError(f"{name} {port} and {other} {same}: accepted: a port each")
        for name, port in own.items():
            check_free(name, "--triton-host", self.host, port)


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """Return what a client on this machine connects to, of a host that somebody listens on."""
    own = _ANY.get(host, host)
    return f"{scheme}://[{own}]:{port}" if ":" in own else f"{scheme}://{own}:{port}"


def check_free(port_option: str, host_option: str, host: str, port: int) -> None:
    """Raise ConfigurationError, naming the option, if nobody could listen there now."""
    try:
        family, address = _resolved(host, port)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = f"choose another port ({port_option}) or address ({host_option})"
        raise ConfigurationError(f"{port_option} {port} on {host}: {reason}; {advice}") from error


def free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """Return family and address of a host; of a name the first that it has."""
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = entries[0]
    return family, (address[0], port, *address[2:])
