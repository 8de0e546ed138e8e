"""A request and its answer, recorded or just given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lmi_backend.clients.registry import CLIENTS, path_at
from lmi_backend.redaction import HIDDEN, header_without_secrets

_OF_A_CONNECTION: Final = frozenset(
    {
        *("host", "connection", "keep-alive", "transfer-encoding", "content-length", "te"),
        *("accept-encoding", "upgrade", "expect", "trailer", "http2-settings", "x-amz-date"),
    }
)
INVOCATIONS: Final = "/invocations"
"""The path of SageMaker."""
UNKNOWN: Final = "none"
"""The client of a path that no client of this package has."""


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    path: str
    """With its query."""
    body: bytes = b""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in small letters; without those of a connection, and without secrets."""

    @property
    def bare_path(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]

    @property
    def template(self) -> str:
        """The path with names in braces, if it is a known one."""
        known = path_at(self.path)
        return known.template if known else self.bare_path

    @property
    def client(self) -> str:
        """The title of the client that has this path."""
        known = path_at(self.path)
        specs = (spec for spec in CLIENTS.values() if known in spec.paths)
        return next((spec.title for spec in specs), UNKNOWN)


@dataclass(frozen=True)
class RecordedAnswer:
    """What a server answered."""

    status: int | None
    """None: the record does not have it."""
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes
    arrivals: tuple[float, ...] = ()
    """Seconds from the request to each part of the body; empty if the record does not have them."""
    seconds: float | None = None
    """From the request to the last byte."""
    error: str = ""
    """Why there is no whole answer."""

    @property
    def media_type(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True)
class RecordedExchange:
    """A recorded request, and its answer if that was recorded."""

    request: Request
    answer: RecordedAnswer | None
    place: str
    """File and line."""
    at: float | None = None
    """When it was sent, in seconds of any clock; None if the record does not have it."""


def sent_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that are sent again: not those of a connection, and no secrets.

    A key for the old server must not reach another one.
    """
    lower = {str(name).lower(): str(value) for name, value in headers.items()}
    return {
        name: value
        for name, value in lower.items()
        if name not in _OF_A_CONNECTION
        and not name.startswith((":", "proxy-", "sec-"))
        and HIDDEN not in header_without_secrets(name, value)
    }
