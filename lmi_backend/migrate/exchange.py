"""A request and its answer, recorded or just given, and how a record of any program has them."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from lmi_backend.bounded_files import LARGEST
from lmi_backend.clients.registry import CLIENTS, path_at
from lmi_backend.printable import printable
from lmi_backend.redaction import HIDDEN, header_without_secrets, without_secrets

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


class BadRecordError(ValueError):
    """A record is wrong; the text says where and how."""


def path_of(value: Any) -> str:
    """Return the path, with its query, of an address or a path."""
    if not isinstance(value, str):
        raise BadRecordError(f"path is {kind_shown(value)}; accepted: a path such as {INVOCATIONS}")
    try:
        parts = urlsplit(value)
    except ValueError as error:
        raise BadRecordError(f"path {printable(value, 40)!r} is wrong: {error}") from error
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise BadRecordError(f"path is {printable(value, 40)!r}; accepted: {INVOCATIONS}, …")
    return without_secrets(path)


def headers_of(value: Any, name: str) -> dict[str, str]:
    """Return headers with names in small letters; several of one name have commas between.

    A record has an object, a list of `[NAME, VALUE]`, or a list of objects.
    """
    if isinstance(value, dict):
        pairs: Iterable[tuple[Any, Any]] = value.items()
    elif value is None or isinstance(value, list):
        pairs = (_pair(each, name) for each in value or ())
    else:
        raise BadRecordError(f"{name} is {kind_shown(value)}; accepted: an object")
    found: dict[str, str] = {}
    for key, text in pairs:
        lower, value_of = str(key).lower(), _checked(text, f"{name}.{key}")
        found[lower] = f"{found[lower]}, {value_of}" if lower in found else value_of
    return found


def _pair(member: Any, name: str) -> tuple[str, Any]:
    match member:
        case [key, value]:
            return str(key), value
        case {"name": str() as key} | {"key": str() as key}:
            return key, member.get("value", "")
    raise BadRecordError(f"{name} has a wrong member; accepted: [NAME, VALUE]")


def _checked(value: Any, name: str) -> str:
    """Return a header's value, which has no line feed."""
    text = value if isinstance(value, str) else str(value)
    if "\n" in text or "\r" in text or "\0" in text:
        raise BadRecordError(f"{printable(name, 60)} has a line feed in its value")
    return text


def without_encoding(headers: dict[str, str], kind: str) -> dict[str, str]:
    """Return the headers of a body that the record has decoded."""
    kept = {name: value for name, value in headers.items() if name != "content-encoding"}
    return kept | ({"content-type": kind} if kind and "content-type" not in kept else {})


def plain(body: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    """Return a body without its compression: replay accepts none."""
    coding = headers.get("content-encoding", "identity").lower()
    if coding in ("", "identity") or not body:
        return body, headers
    if coding not in ("gzip", "x-gzip", "deflate"):
        known = "gzip, deflate; record with clients that accept these alone"
        raise BadRecordError(
            f"answer is compressed with {printable(coding, 20)}; accepted: {known}"
        )
    # 32 more: the header tells gzip from zlib.
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        data = reader.decompress(body, LARGEST)
    except zlib.error as error:
        raise BadRecordError(f"answer cannot be decompressed: {error}") from error
    if reader.unconsumed_tail or not reader.eof:
        raise BadRecordError("answer is cut or too large when it is decompressed")
    return data, without_encoding(headers, "")


def decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecordError(f"{name} is not base64: {error}") from error


def number_of(record: Mapping[str, Any], name: str) -> float | None:
    """Return a number of a record; None if it has none."""
    value = record.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and value is not None else None


def instant_of(value: Any) -> float | None:
    """Return a date and time in seconds; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def typed(record: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """Return a member of a record, which has one type."""
    value = record.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        accepted = _KINDS.get(kind, kind.__name__)
        raise BadRecordError(f"{name} is {kind_shown(value)}; accepted: {accepted}")
    return value


def kind_shown(value: Any) -> str:
    """Return the type of a value, for people."""
    if value is None:
        return "missing"
    if isinstance(value, (bool, int, float)):
        return f"{value!r}"
    return _KINDS.get(type(value), "unknown")


_KINDS: Final[dict[type, str]] = {str: "a text", dict: "an object", list: "a list"}
