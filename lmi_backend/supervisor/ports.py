"""Where a server listens."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection

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


def wait_until_well(host: str, port: int, seconds: float, *, has_tls: bool) -> None:
    """Wait until the front end there says that it takes requests, or for some seconds.

    One that speaks with clients of its own certificates alone is taken for well.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kind = partial(HTTPSConnection, context=context) if has_tls else HTTPConnection
        connection = kind(host, port, timeout=1)
        try:
            connection.request("GET", "/ping")
            if connection.getresponse().status == HTTPStatus.OK:
                return
        except ssl.SSLError:
            return
        except (OSError, HTTPException):
            pass  # It does not listen yet.
        finally:
            connection.close()
        time.sleep(_POLL_SECONDS)
