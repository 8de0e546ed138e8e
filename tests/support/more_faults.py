"""Faults that most clients never notice in a test of their own, and changes that are none."""

import json
import re
from typing import Any

from lmi_backend.migrate import kinds
from tests.support.faulty_proxy import Plant, Planted, in_events, in_json


def _all_events(change: Any) -> Plant:
    """Change the JSON of each event, given its number."""

    def one(number: int, event: bytes) -> bytes:
        text = event.removeprefix(b"data: ")
        if text == b"[DONE]":
            return event
        read = json.loads(text)
        change(number, read)
        return b"data: " + json.dumps(read).encode()

    return in_events(lambda events: [one(*each) for each in enumerate(events)])


def _body(old: bytes, new: bytes, count: int = -1) -> Plant:
    return lambda answer: setattr(answer, "body", answer.body.replace(old, new, count))


def _header(name: str, value: str) -> Plant:
    return lambda answer: answer.headers.update({name: value})


def _no_later_role(number: int, event: Any) -> None:
    for choice in event["choices"] if number else ():
        del choice["delta"]["role"]


def _not_twice(number: int, event: Any) -> None:
    if number:
        event["id"] = f"{event['id']}-{number}"


def _later(number: int, event: Any) -> None:
    event["created"] += number


def _pretty(answer: Planted) -> None:
    """Write each event's JSON on several lines, each with its `data:`."""

    def several(event: bytes) -> bytes:
        text = event.removeprefix(b"data: ")
        if text == b"[DONE]":
            return event
        lines = json.dumps(json.loads(text), indent=1).splitlines()
        return "\n".join(f"data: {line}" for line in lines).encode()

    answer.events = [several(each) for each in answer.events]


def _split_letter(answer: Planted) -> None:
    """Cut an event in the middle of a letter."""
    answer.events = [*answer.events[:1], b'data: {"x": "\xc3"}', *answer.events[1:]]


def _with_call(read: Any) -> None:
    read["choices"][0]["message"]["tool_calls"] = [{"id": "1"}]


def _moved(read: Any) -> None:
    for token in read["details"]["tokens"]:
        token["id"] += 1


def _millis(read: Any) -> None:
    read["created"] *= 1000


def _ended(events: list[bytes]) -> list[bytes]:
    """Double the event with the finish reason."""
    at = next(at for at, each in enumerate(events) if b'"finish_reason":"' in each)
    return [*events[: at + 1], *events[at:]]


def _spaced(events: list[bytes]) -> None:
    """Let the text end with a blank."""
    at = max(at for at, each in enumerate(events) if re.search(rb'"content": ?"[^"]', each))
    events[at] = re.sub(rb'("content": ?"[^"]+)"', rb'\1 "', events[at])


def _no_reason(number: int, event: Any) -> None:
    for choice in event["choices"]:
        choice["finish_reason"] = None


FAULTS: dict[str, tuple[str, str, Plant]] = {
    "another id in each event": ("chat stream", kinds.VALUE, _all_events(_not_twice)),
    "another time in each event": ("chat stream", kinds.VALUE, _all_events(_later)),
    "a time in milliseconds": ("chat", kinds.VALUE, in_json(_millis)),
    "a role in the first alone": ("chat stream", kinds.MISSING, _all_events(_no_later_role)),
    "an event on several lines": ("chat stream", kinds.FRAMING, _pretty),
    "half a letter": ("chat stream", kinds.FRAMING, _split_letter),
    "an error amid a stream": (
        "sampled stream",
        kinds.FRAMING,
        in_events(lambda e: [*e[:2], b'data: {"error": {"message": "gone"}}', *e[2:]]),
    ),
    "an error at the end": (
        "sampled stream",
        kinds.FRAMING,
        in_events(lambda e: [e[0], b'data: {"error": {"message": "gone"}}', b"data: [DONE]"]),
    ),
    "no reason in a stream": ("sampled stream", kinds.FRAMING, _all_events(_no_reason)),
    "an event that is no JSON": (
        "sampled stream",
        kinds.FRAMING,
        in_events(lambda e: [e[0], b"data: keep-alive", *e[1:]]),
    ),
    "the end twice": ("chat stream", kinds.FRAMING, in_events(_ended)),
    "a blank at the end": ("chat stream", kinds.GREEDY, in_events(_spaced)),
    "lines with CR LF": ("chat stream", kinds.FRAMING, _body(b"\n", b"\r\n")),
    "another character set": (
        "chat stream",
        kinds.CONTENT_TYPE,
        _header("content-type", "text/event-stream; charset=latin-1"),
    ),
    "[DONE] as JSON": ("chat stream", kinds.FRAMING, _body(b"[DONE]", b'"[DONE]"')),
    "[DONE] in small letters": ("chat stream", kinds.FRAMING, _body(b"[DONE]", b"[done]")),
    "tokens of other numbers": ("LMI", kinds.VALUE, in_json(_moved)),
    "another request's id": ("chat with an id", kinds.HEADER, _header("x-request-id", "other")),
    "a call nobody made": ("chat", kinds.ADDED, in_json(_with_call)),
    "two values of one body": ("completion", kinds.BODY, lambda a: setattr(a, "body", a.body * 2)),
    "a mark before the body": (
        "chat",
        kinds.BODY,
        lambda answer: setattr(answer, "body", b"\xef\xbb\xbf" + answer.body),
    ),
    "other events by name": (
        "chat stream",
        kinds.FRAMING,
        _body(b"data: ", b"event: chunk\ndata: "),
    ),
}
"""Of each the request that shows it, the kind of the difference, and what plants it."""


def _reversed(answer: Planted) -> None:
    """Write the members of the body in another order, with other blanks and escapes."""

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(item) for key, item in reversed(value.items())}
        return [turned(each) for each in value] if isinstance(value, list) else value

    answer.body = json.dumps(turned(json.loads(answer.body)), indent=1).encode()


def _escaped(answer: Planted) -> None:
    answer.body = re.sub(
        rb'(?<="content": ")[^"]*|(?<="content":")[^"]*',
        lambda found: b"".join(b"\\u%04x" % letter for letter in found[0]),
        answer.body,
    )


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
    "another order of members": ("chat", _reversed),
    "other escapes": ("chat", _escaped),
    "a line feed behind the body": (
        "chat",
        lambda answer: setattr(answer, "body", answer.body + b"\n"),
    ),
    "its character set": ("chat", _header("content-type", "application/json; charset=UTF-8")),
    "a comment": (
        "chat stream",
        lambda answer: setattr(answer, "body", b": hello\n\n" + answer.body),
    ),
    "a time to reconnect": (
        "chat stream",
        lambda answer: setattr(answer, "body", b"retry: 100\n\n" + answer.body),
    ),
    "numbers of events": ("chat stream", _body(b"data: ", b"id: 1\ndata: ")),
    "texts cut otherwise": ("chat stream", _cut_otherwise),
    "another id": ("chat", in_json(lambda read: read.update(id="chatcmpl-other"))),
    "another second": ("chat", in_json(lambda read: read.update(created=read["created"] + 9))),
    "another text of an error": (
        "unknown model",
        in_json(lambda read: read["error"].update(message="no such model")),
    ),
    "more headers": ("chat", _header("server", "other")),
    "log probabilities a little off": (
        "LMI",
        in_json(lambda read: read["details"]["tokens"][0].update(log_prob=-0.51)),
    ),
}
"""Changes that no client sees."""
