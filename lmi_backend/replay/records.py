"""Read one recorded exchange: our JSON line, a line of SageMaker's data capture, a HAR entry."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from lmi_backend.bounded_files import LARGEST
from lmi_backend.clients.registry import path_at
from lmi_backend.printable import printable
from lmi_backend.replay.exchange import INVOCATIONS, Answer, Exchange, Request, sent_headers

_ANSWER: Final = frozenset({"status", "headers", "body", "body_base64", "events", "seconds"})
_JSON: Final = "application/json"


class BadRecordError(ValueError):
    """A record is wrong; the text says where and how."""


def read_record(record: Any, place: str) -> Exchange:
    """Return the exchange of a JSON line.

    Raises:
        BadRecordError: it is none.
    """
    if not isinstance(record, dict):
        raise BadRecordError(f"is {_kind(record)}; accepted: an object")
    if "captureData" in record:
        return _captured(record, place)
    if "path" in record:
        return _line(record, place)
    names = ", ".join(printable(str(name), 20) for name in list(record)[:5])
    raise BadRecordError(f"has neither path nor captureData; it has {names or 'no member'}")


def _line(record: Mapping[str, Any], place: str) -> Exchange:
    body = _body(record, "")
    method = _typed(record, "method", str, "POST" if body else "GET")
    headers = _headers(record.get("headers"), "headers")
    if isinstance(record.get("body"), (dict, list)):
        headers = _without_encoding(headers, _JSON)
    request = Request(_path(record["path"]), body, method.upper(), sent_headers(headers))
    return Exchange(request, _answer(record.get("answer")), place, _number(record, "time"))


def _answer(answer: Any) -> Answer | None:
    if answer is None:
        return None
    if not isinstance(answer, dict) or not answer.keys() <= _ANSWER or not answer:
        # The body alone.
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        return Answer(None, {}, data)
    status = answer.get("status")
    if status is not None and (isinstance(status, bool) or not isinstance(status, int)):
        raise BadRecordError(f"answer.status is {_kind(status)}; accepted: a number such as 200")
    headers = _headers(answer.get("headers"), "answer.headers")
    arrivals: tuple[float, ...] = ()
    if "events" in answer:
        events = _events(answer["events"])
        arrivals = tuple(seconds for seconds, _ in events)
        body = b"".join(data for _, data in events)
    else:
        body = _body(answer, "answer.")
    body, headers = _plain(body, headers)
    if not isinstance(answer.get("body", ""), str):
        headers = _without_encoding(headers, _JSON)
    return Answer(status, headers, body, arrivals, _number(answer, "seconds"))


def _events(events: Any) -> list[tuple[float, bytes]]:
    if not isinstance(events, list):
        raise BadRecordError(f"answer.events is {_kind(events)}; accepted: a list")
    found = []
    for event in events:
        match event:
            case [int() | float() as seconds, str() as text]:
                found.append((float(seconds), text.encode()))
            case [int() | float() as seconds, {"base64": str() as text}]:
                found.append((float(seconds), _decoded(text, "answer.events")))
            case _:
                raise BadRecordError("answer.events has a wrong one; accepted: [SECONDS, TEXT]")
    return found


def _captured(record: Mapping[str, Any], place: str) -> Exchange:
    data = _typed(record, "captureData", dict, {})
    if not isinstance(given := data.get("endpointInput"), dict):
        raise BadRecordError("captureData has no endpointInput: only answers were captured")
    about = _typed(record, "eventMetadata", dict, {})
    headers = {"content-type": _typed(given, "observedContentType", str, _JSON)}
    if isinstance(own := about.get("customAttributes"), list) and own:
        headers["x-amzn-sagemaker-custom-attributes"] = ",".join(map(str, own))
    for name, header in _METADATA.items():
        if isinstance(value := about.get(name), str):
            headers[header] = value
    request = Request(INVOCATIONS, _data(given, "endpointInput"), "POST", headers)
    answer = None
    if isinstance(output := data.get("endpointOutput"), dict):
        kind = _typed(output, "observedContentType", str, "")
        # A capture has no status: SageMaker writes it for answers of any.
        answer = Answer(
            None, {"content-type": kind} if kind else {}, _data(output, "endpointOutput")
        )
    return Exchange(request, answer, place, _instant(about.get("inferenceTime")))


_METADATA: Final = {
    "inferenceId": "x-amzn-sagemaker-inference-id",
    "targetModel": "x-amzn-sagemaker-target-model",
}


def _data(part: Mapping[str, Any], name: str) -> bytes:
    data = _typed(part, "data", str, "")
    encoding = _typed(part, "encoding", str, "JSON").upper()
    return _decoded(data, f"{name}.data") if encoding == "BASE64" else data.encode()


def read_har_entry(entry: Any, place: str) -> Exchange | None:
    """Return the exchange of a HAR entry; None if it only loads a page or a picture.

    Raises:
        BadRecordError: it is none.
    """
    if not isinstance(entry, dict):
        raise BadRecordError(f"is {_kind(entry)}; accepted: an object")
    asked = _typed(entry, "request", dict, {})
    path, method = _path(asked.get("url")), _typed(asked, "method", str, "GET").upper()
    known = path_at(path)
    if method == "OPTIONS" or (known is None and method != "POST"):
        return None
    if known is not None and method not in known.methods.split():
        return None
    posted = _typed(asked, "postData", dict, {})
    body = _typed(posted, "text", str, "").encode()
    headers = _without_encoding(_pairs(asked.get("headers"), "request.headers"), "")
    if kind := posted.get("mimeType"):
        headers.setdefault("content-type", str(kind))
    request = Request(path, body, method, sent_headers(headers))
    at = _instant(entry.get("startedDateTime"))
    return Exchange(request, _har_answer(entry), place, at)


def _har_answer(entry: Mapping[str, Any]) -> Answer | None:
    answer = _typed(entry, "response", dict, {})
    status = answer.get("status")
    if not isinstance(status, int) or status <= 0:
        # The browser gave up, or blocked it.
        return None
    content = _typed(answer, "content", dict, {})
    text = _typed(content, "text", str, "")
    is_binary = content.get("encoding") == "base64"
    body = _decoded(text, "response.content.text") if is_binary else text.encode()
    headers = _without_encoding(_pairs(answer.get("headers"), "response.headers"), "")
    spent = _number(entry, "time")
    return Answer(status, headers, body, (), None if spent is None else spent / 1000)


def _path(value: Any) -> str:
    if not isinstance(value, str):
        raise BadRecordError(f"path is {_kind(value)}; accepted: a path such as {INVOCATIONS}")
    try:
        parts = urlsplit(value)
    except ValueError as error:
        raise BadRecordError(f"path {printable(value, 40)!r} is wrong: {error}") from error
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
        raise BadRecordError(f"path is {printable(value, 40)!r}; accepted: {INVOCATIONS}, …")
    return path


def _body(record: Mapping[str, Any], prefix: str) -> bytes:
    if "body_base64" in record:
        text = _typed(record, "body_base64", str, "")
        return _decoded(text, f"{prefix}body_base64")
    body = record.get("body")
    if body is None:
        return b""
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def _headers(value: Any, name: str) -> dict[str, str]:
    """Return headers with names in small letters; several of one name have commas between."""
    if value is None:
        return {}
    if isinstance(value, list):
        return _pairs([{"name": each[0], "value": each[1]} for each in _twos(value, name)], name)
    if not isinstance(value, dict):
        raise BadRecordError(f"{name} is {_kind(value)}; accepted: an object")
    return {str(key).lower(): _checked(text, f"{name}.{key}") for key, text in value.items()}


def _twos(value: list[Any], name: str) -> list[Any]:
    if all(isinstance(each, list) and len(each) == 2 for each in value):
        return value
    raise BadRecordError(f"{name} has a wrong member; accepted: [NAME, VALUE]")


def _pairs(value: Any, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in value if isinstance(value, list) else ():
        key = each.get("name") if isinstance(each, dict) else None
        if not isinstance(key, str):
            raise BadRecordError(f"{name} has a header without a name")
        text = each.get("value")
        lower, checked = key.lower(), _checked(text, f"{name}.{key}")
        found[lower] = f"{found[lower]}, {checked}" if lower in found else checked
    return found


def _checked(value: Any, name: str) -> str:
    text = value if isinstance(value, str) else str(value)
    if "\n" in text or "\r" in text or "\0" in text:
        raise BadRecordError(f"{printable(name, 60)} has a line feed in its value")
    return text


def _without_encoding(headers: dict[str, str], kind: str) -> dict[str, str]:
    """Return the headers of a body that the record has decoded."""
    kept = {name: value for name, value in headers.items() if name != "content-encoding"}
    return kept | ({"content-type": kind} if kind and "content-type" not in kept else {})


def _plain(body: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
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
    return data, _without_encoding(headers, "")


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecordError(f"{name} is not base64: {error}") from error


def _number(record: Mapping[str, Any], name: str) -> float | None:
    value = record.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and value is not None else None


def _instant(value: Any) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def _typed(record: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = record.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        accepted = _KINDS.get(kind, kind.__name__)
        raise BadRecordError(f"{name} is {_kind(value)}; accepted: {accepted}")
    return value


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, (bool, int, float)):
        return f"{value!r}"
    return _KINDS.get(type(value), "unknown")


_KINDS: Final[dict[type, str]] = {str: "a text", dict: "an object", list: "a list"}
