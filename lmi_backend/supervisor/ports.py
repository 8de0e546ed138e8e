"""Where a server listens."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass

from lmi_backend.errors import ConfigurationError

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Ports:
    """Where the server listens."""

    host: str
    """Where Triton's own ports listen."""
    http: int
    grpc: int
    metrics: int

    @property
    def url(self) -> str:
        """Address for a client on this machine."""
        return f"http://{self._own_host}:{self.http}"

    @property
    def metrics_url(self) -> str:
        """Where Triton's metrics are, for a client on this machine."""
        return f"http://{self._own_host}:{self.metrics}/metrics"

    @property
    def _own_host(self) -> str:
        return "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104

    def check(self) -> None:
        """Raise ConfigurationError if one of them is taken, or given twice."""
        ports = [port for port in (self.http, self.grpc, self.metrics) if port]
        if len(set(ports)) < len(ports):
            raise ConfigurationError(
                f"ports {self.http}, {self.grpc}, {self.metrics}: accepted: three different ones"
            )
        for name, port in (("http", self.http), ("grpc", self.grpc), ("metrics", self.metrics)):
            check_free(f"--{name}-port", self.host, port)


def check_free(option: str, host: str, port: int) -> None:
    """Raise ConfigurationError, naming the option, if nobody could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            message = f"{option} {port} on {host}: {reason}; choose another port"
            raise ConfigurationError(message) from error


def wait_until_open(host: str, port: int, seconds: float) -> None:
    """Wait until somebody takes connections there, or for some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(_POLL_SECONDS)
