"""Read requests and answers from the bytes of a connection, without touching these."""

from __future__ import annotations

import base64
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httptools

from lmi_backend.redaction import header_without_secrets, without_secrets
from lmi_backend.units import MIB

LARGEST: Final = 16 * MIB
"""Bytes of a request and its answer; larger ones pass, but are not written."""


@dataclass
class _Message:
    """A request or an answer, as far as it has come."""

    path: bytes = b""
    method: str = ""
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    parts: list[tuple[float, bytes]] = field(default_factory=list)
    """Of the body, each with the time of its arrival."""
    size: int = 0
    ended: float = 0.0
    is_sized: bool = False
    """Whether the end of the body can be told, other than by the end of the connection."""


class _Reader:
    """Takes what httptools reads of one direction."""

    def __init__(self, on_end: Callable[[_Message], None]) -> None:
        self.parser: Any = None
        self.message = _Message()
        self._on_end = on_end

    def on_message_begin(self) -> None:
        self.message = _Message()

    def on_url(self, url: bytes) -> None:
        self.message.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.decode("latin-1").lower()
        self.message.is_sized |= lower in ("content-length", "transfer-encoding")
        self.message.headers.append((lower, value.decode("latin-1")))

    def on_body(self, body: bytes) -> None:
        message = self.message
        message.size += len(body)
        if message.size <= LARGEST:
            message.parts.append((time.monotonic(), bytes(body)))
        else:
            message.parts.clear()

    def on_message_complete(self) -> None:
        self.message.ended = time.monotonic()
        self._on_end(self.message)


class Exchanges:
    """The exchanges of one connection.

    What is no HTTP/1.1, or changes to another protocol, passes unread.

    Args:
        take: called with each exchange that is complete, as a JSON line has it.
        is_chosen: called for each request; tells whether it is one of the sample.
    """

    def __init__(
        self, take: Callable[[dict[str, Any], int], None], is_chosen: Callable[[], bool]
    ) -> None:
        self.is_read = True
        """Whether the bytes can be understood so far."""
        self.is_idle = True
        """Whether no answer is awaited."""
        self._take, self._is_chosen = take, is_chosen
        self._asked: deque[tuple[_Message, float] | None] = deque()
        self._request = _Reader(self._on_request)
        self._request.parser = httptools.HttpRequestParser(self._request)
        self._answer = _Reader(self._on_answer)
        self._answer.parser = httptools.HttpResponseParser(self._answer)

    def feed_request(self, data: bytes) -> None:
        """Read bytes of the client."""
        self.is_idle = False
        self._feed(self._request, data)

    def feed_answer(self, data: bytes) -> None:
        """Read bytes of the server."""
        self._feed(self._answer, data)

    def end(self) -> None:
        """Complete an answer whose end is that of the connection."""
        message = self._answer.message
        is_open = self._asked and message.headers and not message.is_sized and not message.ended
        if self.is_read and is_open:
            message.status = self._answer.parser.get_status_code()
            self._answer.on_message_complete()

    def _feed(self, reader: _Reader, data: bytes) -> None:
        if not self.is_read:
            return
        try:
            reader.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.is_read = False
            self._asked.clear()

    def _on_request(self, message: _Message) -> None:
        message.method = self._request.parser.get_method().decode("latin-1")
        if message.method in ("HEAD", "CONNECT"):
            # The answer has a length and no body, which the parser cannot know.
            self.is_read = False
        self._asked.append((message, time.time()) if self._is_chosen() else None)

    def _on_answer(self, message: _Message) -> None:
        message.status = self._answer.parser.get_status_code()
        if message.status < 200 or not self._asked:
            # 100 Continue, after which the answer comes.
            return
        asked = self._asked.popleft()
        self.is_idle = not self._asked
        if asked is not None and self.is_read:
            request, at = asked
            size = request.size + message.size
            self._take(_line(request, message, at) if size <= LARGEST else {}, size)


def _line(request: _Message, answer: _Message, at: float) -> dict[str, Any]:
    """Return an exchange as a JSON line has it; secrets in headers and addresses are hidden."""
    body = b"".join(part for _, part in request.parts)
    return {
        "time": round(at, 3),
        "method": request.method,
        "path": without_secrets(request.path.decode("latin-1")),
        "headers": _shown(request.headers),
        **_text(body, "body", "body_base64"),
        "answer": {
            "status": answer.status,
            "headers": _shown(answer.headers),
            "events": [_event(came - request.ended, part) for came, part in answer.parts],
            "seconds": round(answer.ended - request.ended, 6),
        },
    }


def _shown(headers: list[tuple[str, str]]) -> list[list[str]]:
    return [[name, header_without_secrets(name, value)] for name, value in headers]


def _event(seconds: float, part: bytes) -> list[Any]:
    written = _text(part, "text", "base64")
    return [round(seconds, 6), written.get("text", written)]


def _text(data: bytes, name: str, base64_name: str) -> dict[str, str]:
    """Return bytes as a text if they are one, else as base64: none is changed."""
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {base64_name: base64.b64encode(data).decode()}
