"""A recorded exchange: our JSON line, SageMaker's data capture, a HAR entry."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from lmi_backend.clients.registry import CLIENTS, path_at
from lmi_backend.clients.sagemaker import CONTENT_TYPE as AMAZON
from lmi_backend.files import LARGEST
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


@dataclass(frozen=True)
class Request:
    path: str
    body: bytes = b""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in small letters; without those of a connection, and without secrets."""

    @property
    def bare_path(self) -> str:
        return self.path.partition("?")[0]

    @property
    def template(self) -> str:
        served = path_at(self.path)
        return served.template if served else self.bare_path

    @property
    def client(self) -> str:
        served = path_at(self.path)
        specs = (spec for spec in CLIENTS.values() if served in spec.paths)
        return next((spec.title for spec in specs), UNKNOWN)


@dataclass(frozen=True)
class RecordedAnswer:
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

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True)
class RecordedExchange:
    request: Request
    answer: RecordedAnswer | None
    place: str


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
    if not isinstance(value, str):
        raise BadRecordError(f"path is {kind_text(value)}; accepted: a path such as {INVOCATIONS}")
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
        raise BadRecordError(f"{name} is {kind_text(value)}; accepted: an object")
    named: dict[str, str] = {}
    for key, text in pairs:
        lower, value_of = str(key).lower(), _checked(text, f"{name}.{key}")
        named[lower] = f"{named[lower]}, {value_of}" if lower in named else value_of
    return named


def _pair(member: Any, name: str) -> tuple[str, Any]:
    match member:
        case [key, value]:
            return str(key), value
        case {"name": str() as key}:
            return key, member.get("value", "")
    raise BadRecordError(f"{name} has a wrong member; accepted: [NAME, VALUE]")


def _checked(value: Any, name: str) -> str:
    text = value if isinstance(value, str) else str(value)
    if "\n" in text or "\r" in text or "\0" in text:
        raise BadRecordError(f"{printable(name, 60)} has a line feed in its value")
    return text


def without_encoding(headers: dict[str, str], kind: str) -> dict[str, str]:
    others = {name: value for name, value in headers.items() if name != "content-encoding"}
    return others | ({"content-type": kind} if kind and "content-type" not in others else {})


def plain(body: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    """Return a body without its compression: replay accepts none."""
    coding = headers.get("content-encoding", "identity").lower()
    if coding in ("", "identity") or not body:
        return body, headers
    if coding not in ("gzip", "x-gzip", "deflate"):
        encodings = "gzip, deflate; record with clients that accept these alone"
        raise BadRecordError(
            f"answer is compressed with {printable(coding, 20)}; accepted: {encodings}"
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
    value = record.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and value is not None else None


def typed(record: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = record.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        accepted = _KINDS.get(kind, kind.__name__)
        raise BadRecordError(f"{name} is {kind_text(value)}; accepted: {accepted}")
    return value


def kind_text(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, (bool, int, float)):
        return f"{value!r}"
    return _KINDS.get(type(value), "unknown")


_KINDS: Final[dict[type, str]] = {str: "a text", dict: "an object", list: "a list"}


def read_har_entry(entry: Any, place: str) -> RecordedExchange | None:
    """Return the exchange of a HAR entry; None if it only loads a page or a picture."""
    if not isinstance(entry, dict):
        raise BadRecordError(f"is {kind_text(entry)}; accepted: an object")
    sent = typed(entry, "request", dict, {})
    path, method = path_of(sent.get("url")), typed(sent, "method", str, "GET").upper()
    path_there = path_at(path)
    if method == "OPTIONS" or (path_there is None and method != "POST"):
        return None
    if path_there is not None and method not in path_there.methods.split():
        return None
    posted = typed(sent, "postData", dict, {})
    body = _content(posted, "request.postData")
    if body is None:
        if (number_of(sent, "bodySize") or 0) > 0:
            raise BadRecordError("the file lacks the body of the request: export it with content")
        body = b""
    headers = without_encoding(headers_of(sent.get("headers"), "request.headers"), "")
    if kind := posted.get("mimeType"):
        headers.setdefault("content-type", str(kind))
    request = Request(path, body, method, sent_headers(_as_a_page_there(headers, sent["url"])))
    return RecordedExchange(request, _har_answer(entry), place)


def _as_a_page_there(headers: dict[str, str], url: str) -> dict[str, str]:
    """Return headers without the old address, if the page came from there: the new one has it."""
    parts = urlsplit(url)
    if headers.get("origin") != f"{parts.scheme}://{parts.netloc}":
        return headers
    return {name: value for name, value in headers.items() if name not in ("origin", "referer")}


def _har_answer(entry: Mapping[str, Any]) -> RecordedAnswer | None:
    answer = typed(entry, "response", dict, {})
    status = answer.get("status")
    if not isinstance(status, int) or status <= 0 or answer.get("_failureText"):
        # The browser stopped reading, or blocked it.
        return None
    content = typed(answer, "content", dict, {})
    body = _content(content, "response.content")
    if body is None:
        if content.get("size", 0) != 0:
            # Exported without content, or read by the browser itself.
            return None
        body = b""
    headers = without_encoding(headers_of(answer.get("headers"), "response.headers"), "")
    spent = number_of(entry, "time")
    return RecordedAnswer(status, headers, body, (), None if spent is None else spent / 1000)


def _content(content: Mapping[str, Any], name: str) -> bytes | None:
    text = typed(content, "text", str, None)
    if text is None:
        return None
    if content.get("encoding") == "base64":
        return decoded(text, f"{name}.text")
    return _bytes_of(text, str(content.get("mimeType", "")))


def _bytes_of(text: str, media_type: str) -> bytes:
    """Return what a server sent as a text.

    Event streams name no character set: Chromium and mitmproxy read their UTF-8 as Windows-1252 or
    Latin-1, a byte a letter.
    """
    if text.isascii():
        return text.encode()
    try:
        data = b"".join(map(_byte, text))
    except UnicodeEncodeError:
        return text.encode()
    if media_type.startswith(AMAZON):
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return text.encode()
    return data


def _byte(letter: str) -> bytes:
    """Return the byte of a letter in Windows-1252, as browsers read it: all 256 are letters."""
    return letter.encode("latin-1" if ord(letter) < 0x100 else "cp1252")


_ANSWER: Final = frozenset({"status", "headers", "body", "body_base64", "events", "seconds"})
JSON: Final = "application/json"


def read_record(record: Any, place: str) -> RecordedExchange:
    if not isinstance(record, dict):
        raise BadRecordError(f"is {kind_text(record)}; accepted: an object")
    if "captureData" in record:
        return _captured(record, place)
    if "path" in record:
        return _line(record, place)
    names = ", ".join(printable(str(name), 20) for name in list(record)[:5])
    raise BadRecordError(f"has neither path nor captureData; it has {names or 'no member'}")


def _line(record: Mapping[str, Any], place: str) -> RecordedExchange:
    body = _body(record, "")
    method = typed(record, "method", str, "POST" if body else "GET")
    headers = headers_of(record.get("headers"), "headers")
    if isinstance(record.get("body"), (dict, list)):
        headers = without_encoding(headers, JSON)
    request = Request(path_of(record["path"]), body, method.upper(), sent_headers(headers))
    return RecordedExchange(request, _answer(record.get("answer")), place)


def _answer(answer: Any) -> RecordedAnswer | None:
    if answer is None:
        return None
    if not isinstance(answer, dict) or not answer.keys() <= _ANSWER or not answer:
        # The body alone.
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        return RecordedAnswer(None, {}, data)
    status = answer.get("status")
    if status is not None and (isinstance(status, bool) or not isinstance(status, int)):
        raise BadRecordError(
            f"answer.status is {kind_text(status)}; accepted: a number such as 200"
        )
    headers = headers_of(answer.get("headers"), "answer.headers")
    arrivals: tuple[float, ...] = ()
    if "events" in answer:
        events = _events(answer["events"])
        arrivals = tuple(seconds for seconds, _ in events)
        body = b"".join(data for _, data in events)
    else:
        body = _body(answer, "answer.")
    body, headers = plain(body, headers)
    if not isinstance(answer.get("body", ""), str):
        headers = without_encoding(headers, JSON)
    return RecordedAnswer(status, headers, body, arrivals, number_of(answer, "seconds"))


def _events(events: Any) -> list[tuple[float, bytes]]:
    if not isinstance(events, list):
        raise BadRecordError(f"answer.events is {kind_text(events)}; accepted: a list")
    records = []
    for event in events:
        match event:
            case [int() | float() as seconds, str() as text]:
                records.append((float(seconds), text.encode()))
            case [int() | float() as seconds, {"base64": str() as text}]:
                records.append((float(seconds), decoded(text, "answer.events")))
            case _:
                raise BadRecordError("answer.events has a wrong one; accepted: [SECONDS, TEXT]")
    return records


def _captured(record: Mapping[str, Any], place: str) -> RecordedExchange:
    data = typed(record, "captureData", dict, {})
    if not isinstance(given := data.get("endpointInput"), dict):
        raise BadRecordError("captureData has no endpointInput: only answers were captured")
    about = typed(record, "eventMetadata", dict, {})
    headers = {"content-type": typed(given, "observedContentType", str, JSON)}
    if isinstance(own := about.get("customAttributes"), list) and own:
        headers["x-amzn-sagemaker-custom-attributes"] = ",".join(map(str, own))
    for name, header in _METADATA.items():
        if isinstance(value := about.get(name), str):
            headers[header] = value
    request = Request(INVOCATIONS, _data(given, "endpointInput"), "POST", headers)
    answer = None
    if isinstance(output := data.get("endpointOutput"), dict):
        kind = typed(output, "observedContentType", str, "")
        # A capture has no status: SageMaker writes it for answers of any.
        answer = RecordedAnswer(
            None, {"content-type": kind} if kind else {}, _data(output, "endpointOutput")
        )
    return RecordedExchange(request, answer, place)


_METADATA: Final = {
    "inferenceId": "x-amzn-sagemaker-inference-id",
    "targetModel": "x-amzn-sagemaker-target-model",
}


def _data(part: Mapping[str, Any], name: str) -> bytes:
    data = typed(part, "data", str, "")
    encoding = typed(part, "encoding", str, "JSON").upper()
    return decoded(data, f"{name}.data") if encoding == "BASE64" else data.encode()


def _body(record: Mapping[str, Any], prefix: str) -> bytes:
    if "body_base64" in record:
        text = typed(record, "body_base64", str, "")
        return decoded(text, f"{prefix}body_base64")
    body = record.get("body")
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()
