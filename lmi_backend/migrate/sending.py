"""Send a request once, as it was recorded, and keep the whole answer."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from lmi_backend.errors import ConfigurationError
from lmi_backend.migrate.exchange import RecordedAnswer, Request
from lmi_backend.units import MIB, human_bytes

LARGEST: Final = 64 * MIB
"""Bytes of an answer."""


@dataclass(frozen=True)
class Target:
    """A server that gets the requests."""

    url: str
    timeout: float = 300.0
    """Seconds that a read may take."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with each request, over recorded ones of the same name."""
    certificates: Path | None = None
    """Of the authority that signed the certificate of the server; None: those of this machine."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            is_right = False
        if not is_right:
            raise ConfigurationError(f"{self.url}: is no address; accepted: http://HOST:PORT")
        if parts.scheme == "https":
            # A file that is none is refused before anything is sent.
            _ = self._context

    def send(self, request: Request) -> RecordedAnswer:
        """Return the answer to a request; its `error` says why there is no whole one.

        Nothing is sent twice. The connection is new, so no time-out of an idle one is in the way.
        """
        connection = self._connect()
        began = time.monotonic()
        try:
            connection.connect()
            began = time.monotonic()
            self._write(connection, request)
            return _read(connection.getresponse(), began)
        except (OSError, HTTPException, ValueError) as error:
            # The last one: a recorded header that HTTP cannot have.
            problem = str(error) or type(error).__name__
            return RecordedAnswer(None, {}, b"", (), time.monotonic() - began, problem)
        finally:
            connection.close()

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=self.timeout)
        return HTTPSConnection(host, parts.port, timeout=self.timeout, context=self._context)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.certificates)
        except OSError as error:
            message = f"{self.certificates}: cannot be read as certificates: {error}"
            raise ConfigurationError(message) from error

    def _write(self, connection: HTTPConnection, request: Request) -> None:
        path = urlsplit(self.url).path.rstrip("/") + request.path
        connection.putrequest(request.method, path, skip_accept_encoding=True)
        own = {name.lower(): value for name, value in self.headers.items()}
        for name, value in {**request.headers, **own}.items():
            connection.putheader(name, value.encode())
        if request.body or request.method in ("POST", "PUT", "PATCH"):
            connection.putheader("content-length", str(len(request.body)))
        connection.endheaders(request.body or None)


def _read(response: HTTPResponse, began: float) -> RecordedAnswer:
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        lower = name.lower()
        headers[lower] = f"{headers[lower]}, {value}" if lower in headers else value
    parts, arrivals, size, error = [], [], 0, ""
    try:
        while part := response.read1(MIB):
            parts.append(part)
            arrivals.append(time.monotonic() - began)
            if (size := size + len(part)) > LARGEST:
                error = f"the answer is larger than {human_bytes(LARGEST)}"
                break
        else:
            if response.length:
                error = f"the answer was cut, {response.length} bytes before its end"
    except (OSError, HTTPException) as failure:
        error = f"the answer was cut: {failure or type(failure).__name__}"
    spent = time.monotonic() - began
    return RecordedAnswer(response.status, headers, b"".join(parts), tuple(arrivals), spent, error)
