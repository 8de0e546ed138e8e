"""Faults to plant in the answers of a real server.

`replay` must find each of `FAULTS`, and none of `HARMLESS`.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import delitem, setitem
from typing import Any

from lmi_backend.migrate import kinds

MORE = {"temperature": 0, "top_p": 1.0, "seed": 7, "user": "someone", "max_tokens": 4}
CHAT: dict[str, Any] = {
    "model": "echo",
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two"}],
    **MORE,
}
TEXT = {"model": "echo", "prompt": "one two three four", **MORE}
PARAMETERS = {"max_new_tokens": 4, "details": True, "top_p": 0.9, "do_sample": False, "seed": 3}
LMI = {"inputs": "one two three four", "parameters": PARAMETERS}
TRITON = {"text_input": "one two", "max_tokens": 4, "temperature": 0, "seed": 1, "top_p": 1}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat stream": ("/v1/chat/completions", CHAT | {"stream": True}),
    "completion": ("/v1/completions", TEXT),
    "unknown model": ("/v1/chat/completions", CHAT | {"model": "nobody"}),
    "LMI": ("/invocations", LMI),
    "LMI stream": ("/invocations", LMI | {"stream": True}),
    "wrong LMI": ("/invocations", LMI | {"parameters": PARAMETERS | {"max_new_tokens": "x"}}),
    "TGI": ("/generate", LMI),
    "TGI stream": ("/generate_stream", LMI),
    "Triton": ("/v2/models/echo/generate", TRITON),
    "Triton stream": ("/v2/models/echo/generate_stream", TRITON | {"stream": True}),
    "SageMaker stream": ("/endpoints/e/invocations-response-stream", LMI | {"stream": True}),
    "sampled stream": ("/v1/chat/completions", CHAT | {"stream": True, "temperature": 1}),
    "chat with an id": ("/v1/chat/completions", CHAT),
}
HEADERS = {"chat with an id": {"x-request-id": "own"}}


@dataclass
class Planted:
    """An answer, to be changed."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def events(self) -> list[bytes]:
        """The server-sent events of the body."""
        return [each for each in self.body.split(b"\n\n") if each.strip()]

    @events.setter
    def events(self, events: list[bytes]) -> None:
        self.body = b"".join(each + b"\n\n" for each in events)


Plant = Callable[[Planted], None]


def in_json(change: Callable[[Any], Any]) -> Plant:
    """Change the JSON of a whole answer."""

    def plant(answer: Planted) -> None:
        read = json.loads(answer.body)
        changed = change(read)
        answer.body = json.dumps(read if changed is None else changed).encode()

    return plant


def in_events(change: Callable[[list[bytes]], Any]) -> Plant:
    """Change the list of the events of a stream."""

    def plant(answer: Planted) -> None:
        events = answer.events
        changed = change(events)
        answer.events = events if changed is None else changed

    return plant


def in_event(place: int, change: Callable[[Any], Any]) -> Plant:
    """Change the JSON of one event of a stream."""

    def plant(answer: Planted) -> None:
        events = answer.events
        read = json.loads(events[place].removeprefix(b"data:"))
        change(read)
        events[place] = b"data: " + json.dumps(read).encode()
        answer.events = events

    return plant


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    return _at(path, lambda inner, name: setitem(inner, name, value))


def drop(*path: Any) -> Callable[[Any], None]:
    return _at(path, delitem)


def add(amount: float, *path: Any) -> Callable[[Any], None]:
    return _at(path, lambda inner, name: setitem(inner, name, inner[name] + amount))


def _at(path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Callable[[Any], None]:
    return lambda read: change(reduce(lambda inner, name: inner[name], path[:-1], read), path[-1])


def field(name: str, value: Any) -> Plant:
    return lambda answer: setattr(answer, name, value)


def header(name: str, value: str) -> Plant:
    return lambda answer: answer.headers.update({name: value})


def body(old: bytes, new: bytes) -> Plant:
    return lambda answer: setattr(answer, "body", answer.body.replace(old, new))


def start(data: bytes) -> Plant:
    """Return what puts bytes before the body."""
    return lambda answer: setattr(answer, "body", data + answer.body)


def half(answer: Planted) -> None:
    answer.body = answer.body[: len(answer.body) // 2]


def numbered(change: Callable[[int, Any], None]) -> Plant:
    """Return what changes the JSON of each event, given its number."""

    def one(number: int, event: bytes) -> bytes:
        text = event.removeprefix(b"data: ")
        if text == b"[DONE]":
            return event
        change(number, read := json.loads(text))
        return b"data: " + json.dumps(read).encode()

    return in_events(lambda events: [one(*each) for each in enumerate(events)])


def _several_lines(answer: Planted) -> None:
    """Write each event's JSON on several lines, each with its `data:`."""

    def several(event: bytes) -> bytes:
        text = event.removeprefix(b"data: ")
        lines = [] if text == b"[DONE]" else json.dumps(json.loads(text), indent=1).splitlines()
        return "\n".join(f"data: {line}" for line in lines).encode() or event

    answer.events = [several(each) for each in answer.events]


def _ended_twice(events: list[bytes]) -> list[bytes]:
    at = next(at for at, each in enumerate(events) if b'"finish_reason":"' in each)
    return [*events[: at + 1], *events[at:]]


def _with_blank(events: list[bytes]) -> None:
    """Let the text end with a blank."""
    at = max(at for at, each in enumerate(events) if re.search(rb'"content": ?"[^"]', each))
    events[at] = re.sub(rb'("content": ?"[^"]+)"', rb'\1 "', events[at])


CHOICE = ("choices", 0)
TOKEN = ("details", "tokens", 0)
ERROR = b'data: {"error": {"message": "gone"}}'
FAULTS: dict[str, tuple[str, str, Plant]] = {
    "usage off by one": ("chat", kinds.USAGE, in_json(add(1, "usage", "completion_tokens"))),
    "another model": ("chat", kinds.VALUE, in_json(put("model", value="lmi"))),
    "other words": ("chat", kinds.GREEDY, in_json(put(*CHOICE, "message", "content", value="no"))),
    "a call nobody made": (
        "chat", kinds.ADDED, in_json(put(*CHOICE, "message", "tool_calls", value=[{"id": "1"}])),
    ),
    "another request's id": ("chat with an id", kinds.HEADER, header("x-request-id", "other")),
    "a plain text": ("chat", kinds.CONTENT_TYPE, header("content-type", "text/plain")),
    "a failure": ("chat", kinds.STATUS, field("status", 500)),
    "half a body": ("chat", kinds.BODY, half),
    "a mark before the body": ("chat", kinds.BODY, start(b"\xef\xbb\xbf")),
    "a lost [DONE]": ("chat stream", kinds.FRAMING, in_events(lambda events: events[:-1])),
    "[DONE] as JSON": ("chat stream", kinds.FRAMING, body(b"[DONE]", b'"[DONE]"')),
    "[DONE] before": ("chat stream", kinds.ORDER, in_events(lambda e: [*e[:-2], e[-1], e[-2]])),
    "a lost event": ("chat stream", kinds.GREEDY, in_events(lambda events: events[1:])),
    "the end twice": ("chat stream", kinds.FRAMING, in_events(_ended_twice)),
    "a blank at the end": ("chat stream", kinds.GREEDY, in_events(_with_blank)),
    "no blank": ("chat stream", kinds.FRAMING, body(b"data: ", b"data:")),
    "no last line": (
        "chat stream", kinds.FRAMING, lambda answer: field("body", answer.body.rstrip())(answer),
    ),
    "lines with CR LF": ("chat stream", kinds.FRAMING, body(b"\n", b"\r\n")),
    "events by name": ("chat stream", kinds.FRAMING, body(b"data: ", b"event: chunk\ndata: ")),
    "an event on several lines": ("chat stream", kinds.FRAMING, _several_lines),
    "half a letter": (
        "chat stream", kinds.FRAMING,
        in_events(lambda e: [e[0], b'data: {"x": "\xc3"}', *e[1:]]),
    ),
    "a role in the first alone": (
        "chat stream", kinds.MISSING,
        numbered(lambda n, e: n and [c["delta"].pop("role") for c in e["choices"]]),
    ),
    "JSON for a stream": (
        "chat stream", kinds.CONTENT_TYPE, header("content-type", "application/json"),
    ),
    "an error amid a stream": (
        "sampled stream", kinds.FRAMING, in_events(lambda e: [*e[:2], ERROR, *e[2:]]),
    ),
    "no reason in a stream": (
        "sampled stream", kinds.FRAMING,
        numbered(lambda _, e: [c.update(finish_reason=None) for c in e["choices"]]),
    ),
    "an event that is no JSON": (
        "sampled stream", kinds.FRAMING, in_events(lambda e: [e[0], b"data: alive", *e[1:]]),
    ),
    "200 for 404": ("unknown model", kinds.STATUS, field("status", 200)),
    "another error": ("unknown model", kinds.VALUE, in_json(put("error", "type", value="x"))),
    "less likely": ("LMI", kinds.LOG_PROBABILITY, in_json(add(-0.3, *TOKEN, "log_prob"))),
    "not a number": ("LMI", kinds.TYPE, in_json(put(*TOKEN, "log_prob", value=float("nan")))),
    "one token more": ("LMI", kinds.USAGE, in_json(add(1, "details", "generated_tokens"))),
    "a token of another number": ("LMI", kinds.VALUE, in_json(add(1, *TOKEN, "id"))),
    "no last text": ("LMI stream", kinds.MISSING, body(b"generated_text", b"text")),
    "a wrong number": ("TGI stream", kinds.VALUE, in_event(-1, add(1, "index"))),
    "no text": ("Triton", kinds.MISSING, in_json(drop("text_output"))),
    "Triton's text": ("Triton stream", kinds.GREEDY, in_event(0, put("text_output", value="x"))),
    "a broken message": ("SageMaker stream", kinds.FRAMING, half),
}  # fmt: skip
"""Of each the request that shows it, the kind of the difference, and what plants it."""


def _turned(value: Any) -> Any:
    """Return JSON with the members of its objects in another order."""
    if isinstance(value, dict):
        return {key: _turned(item) for key, item in reversed(value.items())}
    return [_turned(each) for each in value] if isinstance(value, list) else value


def _cut_otherwise(answer: Planted) -> None:
    """Send each text in two events where it can be cut."""
    events = []
    for event in answer.events:
        found = re.search(rb'"content": ?"([a-z ]{2,})"', event)
        if found is None or b'"finish_reason":null' not in event:
            events.append(event)
            continue
        middle = found.start(1) + 1
        events.append(event[:middle] + event[found.end(1) :])
        events.append(event[: found.start(1)] + event[middle:])
    answer.events = events


HARMLESS: dict[str, tuple[str, Plant]] = {
    "another order of members": ("chat", in_json(_turned)),
    "other escapes": ("chat", body(b"one", b"\\u006fne")),
    "its character set": ("chat", header("content-type", "application/json; charset=UTF-8")),
    "a comment": ("chat stream", start(b": hello\n\n")),
    "a time to reconnect": ("chat stream", start(b"retry: 100\n\n")),
    "numbers of events": ("chat stream", body(b"data: ", b"id: 1\ndata: ")),
    "texts cut otherwise": ("chat stream", _cut_otherwise),
    "another id": ("chat", in_json(put("id", value="chatcmpl-other"))),
    "another second": ("chat", in_json(add(9, "created"))),
    "another text of an error": ("unknown model", in_json(put("error", "message", value="none"))),
    "more headers": ("chat", header("server", "other")),
    "log probabilities a little off": ("LMI", in_json(put(*TOKEN, "log_prob", value=-0.51))),
}
"""Changes that no client sees."""
