"""Read exchanges from a connection's bytes, and write them into files below a bound."""

from __future__ import annotations

import base64
import json
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, Final

import httptools

from lmi_backend.errors import ConfigurationError
from lmi_backend.printable import say
from lmi_backend.private_folders import private_folder
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


_WAITING_BYTES: Final = 128 * MIB
"""Of exchanges that are not written yet; further ones are dropped and counted."""
_FILES: Final = 8
"""At least so many files share the bound: so much of it is lost when the oldest is removed."""
_PATTERN: Final = "record-*.jsonl"


class Files:
    """Files in a folder that only this user can read, written by a thread.

    Args:
        folder: where they are.
        most: bytes that all files may have.
    """

    def __init__(self, folder: Path, most: int) -> None:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"{folder}: cannot be made: {error.strerror}") from error
        self._folder, self._most = private_folder(folder), most
        self.written = self.dropped = 0
        """Exchanges."""
        self._queue: queue.SimpleQueue[tuple[dict[str, Any], int] | None] = queue.SimpleQueue()
        self._waiting, self._lock = 0, threading.Lock()
        self._file: BinaryIO | None = None
        self._size = 0
        self._problem = ""
        self._thread = threading.Thread(target=self._write_all, daemon=True)
        self._thread.start()

    def take(self, line: dict[str, Any], size: int) -> None:
        """Have an exchange written; an empty one is too large and only counted."""
        with self._lock:
            if not line or self._waiting + size > _WAITING_BYTES:
                self.dropped += 1
                return
            self._waiting += size
        self._queue.put((line, size))

    def close(self) -> None:
        """Write what waits, and close the file."""
        self._queue.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            line, size = item
            try:
                self._write(json.dumps(line).encode() + b"\n")
                self.written += 1
            except OSError as error:
                self._report(f"{self._folder}: cannot be written: {error.strerror}")
                self.dropped += 1
            with self._lock:
                self._waiting -= size
        if self._file is not None:
            self._file.close()

    def _report(self, problem: str) -> None:
        """Report a problem once: the disk may be full for hours."""
        if problem != self._problem:
            self._problem = problem
            say(problem, "WARNING")

    def _write(self, data: bytes) -> None:
        if len(data) > self._most:
            self.dropped += 1
            self.written -= 1
            return
        if self._file is None or self._size + len(data) > self._most // _FILES:
            self._open_next()
        self._make_room(len(data))
        assert self._file is not None  # noqa: S101  opened above
        self._file.write(data)
        self._file.flush()
        self._size += len(data)

    def _open_next(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        name = datetime.now(timezone.utc).strftime("record-%Y%m%d-%H%M%S-%f.jsonl")
        path = self._folder / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = open(os.open(path, flags, 0o600), "ab")  # noqa: SIM115  open until it is full
        self._size = path.stat().st_size

    def _make_room(self, size: int) -> None:
        """Remove the oldest files, but not the open one, until so many bytes more fit."""
        # Their names sort by time.
        known = [(path, path.stat().st_size) for path in sorted(self._folder.glob(_PATTERN))]
        total = sum(each for _, each in known)
        for path, each in known[:-1]:
            if total + size <= self._most:
                break
            path.unlink()
            total -= each
