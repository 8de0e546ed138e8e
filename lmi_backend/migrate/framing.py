"""Split the body of an answer into its events, and tell what kind each one is."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.clients.form import EVENTS, LINES
from lmi_backend.clients.sagemaker.event_stream import CONTENT_TYPE as AMAZON

if TYPE_CHECKING:
    from lmi_backend.migrate.exchange import RecordedAnswer

DONE: Final = "[DONE]"
_DEEPEST: Final = 64


class NotJson:
    """Stands for data that is not JSON."""


UNREAD: Final = NotJson()


class Event(NamedTuple):
    """One event of a stream, or a whole body."""

    name: str
    """Of a server-sent event; empty if it has none."""
    text: str
    value: Any
    """The JSON of it, or `UNREAD`."""


class Framed(NamedTuple):
    """A body in its events."""

    kind: str
    """`json`, `text`, `empty`, or that of a stream."""
    events: list[Event]
    marks: frozenset[str]
    """How lines are written, where clients can see it."""

    @property
    def is_stream(self) -> bool:
        """Whether there may be any number of events."""
        return self.kind not in ("json", "text", "empty")


def framed(answer: RecordedAnswer) -> Framed:
    """Return the events of an answer, as its content type says, or as it looks without one."""
    media, body = answer.media_type, answer.body
    if media == AMAZON:
        inner, marks = _amazon(body)
        plain = _split(_looks_like(inner), inner.decode("utf-8", "replace"))
        return Framed(f"Amazon event stream of {plain.kind}", plain.events, plain.marks | marks)
    text = body.decode("utf-8", "replace")
    if not text.strip():
        return Framed("empty", [], frozenset())
    kind = "events" if media == EVENTS else "lines" if media in LINES else ""
    if not kind and media in ("", "application/octet-stream"):
        kind = _looks_like(body)
    found = _split(kind, text)
    return found if _is_utf_8(body) else found._replace(marks=found.marks | {"no UTF-8"})


def _is_utf_8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _looks_like(body: bytes) -> str:
    start = body.lstrip()[:6]
    if start.startswith((b"data:", b"event:", b":")):
        return "events"
    lines = [line for line in body.splitlines() if line.strip()]
    many = len(lines) > 1 and all(line.lstrip().startswith(b"{") for line in lines)
    return "lines" if many else ""


def _split(kind: str, text: str) -> Framed:
    if kind == "events":
        return _server_sent(text)
    if kind == "lines":
        lines = [line for line in text.split("\n") if line.strip()]
        marks = frozenset() if text.endswith("\n") else frozenset({"no line feed after the last"})
        return Framed("JSON lines", [Event("", line, parsed(line)) for line in lines], marks)
    value = parsed(text)
    return Framed("text" if value is UNREAD else "json", [Event("", text, value)], frozenset())


def _server_sent(text: str) -> Framed:
    marks = {"CR LF"} if "\r\n" in text else set()
    parts = text.replace("\r\n", "\n").split("\n\n")
    if parts[-1].strip():
        # A client waits for the empty line, and never sees this one.
        marks.add("no empty line after the last event")
    events = []
    for part in parts:
        name, data = "", []
        for line in part.split("\n"):
            field, _, value = line.partition(":")
            if field == "event":
                name = value.strip()
            elif field == "data":
                marks.add("data: with a blank" if value[:1] == " " else "data: without a blank")
                data.append(value.removeprefix(" "))
        if len(data) > 1:
            # Right by the standard, but most clients read each line by itself.
            marks.add("an event with several data: lines")
        if data:
            joined = "\n".join(data)
            events.append(Event(name, joined, parsed(joined)))
    return Framed("server-sent events", events, frozenset(marks))


def _amazon(body: bytes) -> tuple[bytes, frozenset[str]]:
    """Return the payload of Amazon's messages; a mark says if one of them is an exception."""
    payload, marks, at = [], set(), 0
    while at + 16 <= len(body):
        length, head_length = struct.unpack_from("!II", body, at)
        if not 16 + head_length <= length <= len(body) - at:
            break
        head = body[at + 12 : at + 12 + head_length]
        if b"exception" in head:
            marks.add("an exception message")
        else:
            payload.append(body[at + 12 + head_length : at + length - 4])
        at += length
    if at != len(body):
        marks.add("a broken message")
    return b"".join(payload), frozenset(marks)


def parsed(text: str) -> Any:
    """Return the JSON value of a text, or `UNREAD`: it is none, or nested too deeply to compare."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return UNREAD
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(_DEEPEST):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [child for each in inner for child in each if isinstance(child, (dict, list))]
        if not level:
            return value
    return UNREAD
