"""Read one entry of a HAR file, as browsers, mitmproxy and Playwright write it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lmi_backend.bounded_files import read_bounded
from lmi_backend.clients.registry import path_at
from lmi_backend.clients.sagemaker.event_stream import CONTENT_TYPE as AMAZON
from lmi_backend.migrate.exchange import (
    BadRecordError,
    RecordedAnswer,
    RecordedExchange,
    Request,
    decoded,
    headers_of,
    instant_of,
    kind_shown,
    number_of,
    path_of,
    sent_headers,
    typed,
    without_encoding,
)
from lmi_backend.printable import printable


def read_har_entry(entry: Any, place: str, folder: Path) -> RecordedExchange | None:
    """Return the exchange of a HAR entry; None if it only loads a page or a picture.

    Args:
        entry: of the list in the file.
        place: of the entry, for people.
        folder: where the file is: Playwright writes bodies to files next to it.

    Raises:
        BadRecordError: it is none.
    """
    if not isinstance(entry, dict):
        raise BadRecordError(f"is {kind_shown(entry)}; accepted: an object")
    asked = typed(entry, "request", dict, {})
    path, method = path_of(asked.get("url")), typed(asked, "method", str, "GET").upper()
    known = path_at(path)
    if method == "OPTIONS" or (known is None and method != "POST"):
        return None
    if known is not None and method not in known.methods.split():
        return None
    posted = typed(asked, "postData", dict, {})
    body = _content(posted, "request.postData", folder)
    if body is None:
        if (number_of(asked, "bodySize") or 0) > 0:
            raise BadRecordError("the file lacks the body of the request: export it with content")
        body = b""
    headers = without_encoding(headers_of(asked.get("headers"), "request.headers"), "")
    if kind := posted.get("mimeType"):
        headers.setdefault("content-type", str(kind))
    request = Request(path, body, method, sent_headers(_as_a_page_there(headers, asked["url"])))
    at = instant_of(entry.get("startedDateTime"))
    return RecordedExchange(request, _answer(entry, folder), place, at)


def _as_a_page_there(headers: dict[str, str], url: str) -> dict[str, str]:
    """Return headers without the old address, if the page came from there: the new one has it."""
    parts = urlsplit(url)
    if headers.get("origin") != f"{parts.scheme}://{parts.netloc}":
        return headers
    return {name: value for name, value in headers.items() if name not in ("origin", "referer")}


def _answer(entry: Mapping[str, Any], folder: Path) -> RecordedAnswer | None:
    """Return the answer of an entry; None if the file does not have the whole one."""
    answer = typed(entry, "response", dict, {})
    status = answer.get("status")
    if not isinstance(status, int) or status <= 0 or answer.get("_failureText"):
        # The browser stopped reading, or blocked it.
        return None
    content = typed(answer, "content", dict, {})
    body = _content(content, "response.content", folder)
    if body is None:
        if content.get("size", 0) != 0:
            # Exported without content, or read by the browser itself.
            return None
        body = b""
    headers = without_encoding(headers_of(answer.get("headers"), "response.headers"), "")
    spent = number_of(entry, "time")
    return RecordedAnswer(status, headers, body, (), None if spent is None else spent / 1000)


def _content(content: Mapping[str, Any], name: str, folder: Path) -> bytes | None:
    """Return the bytes of a body; None if the file does not have them."""
    media_type = str(content.get("mimeType", ""))
    if isinstance(file := content.get("_file"), str):
        data = _file_content(folder, file, name)
        return data if media_type.startswith(AMAZON) else _repaired(data, media_type)
    text = content.get("text")
    if text is None:
        return None
    text = typed(content, "text", str, "")
    if content.get("encoding") == "base64":
        return decoded(text, f"{name}.text")
    return _bytes_of(text, media_type)


def _file_content(folder: Path, file: str, name: str) -> bytes:
    if Path(file).name != file:
        raise BadRecordError(f"{name}._file is {printable(file, 60)!r}; accepted: a file's name")
    try:
        return read_bounded(folder / file)
    except OSError as error:
        shown = printable(file, 60)
        raise BadRecordError(f"{name}._file {shown}: {error.strerror or error}") from error


def _repaired(data: bytes, media_type: str) -> bytes:
    try:
        return _bytes_of(data.decode(), media_type)
    except UnicodeDecodeError:
        return data


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
