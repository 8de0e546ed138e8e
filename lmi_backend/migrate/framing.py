"""The events of an answer and its members, and what each is.

A member is generated text, a count, or something that always changes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.clients.sagemaker import CONTENT_TYPE as AMAZON
from lmi_backend.clients.spec import EVENTS, LINES

if TYPE_CHECKING:
    from lmi_backend.migrate.records import RecordedAnswer, Request


DONE: Final = "[DONE]"
_DEEPEST: Final = 64


UNREAD: Final = object()
"""Stands for data that is not JSON."""


class Event(NamedTuple):
    name: str
    text: str
    value: Any
    """The JSON of it, or `UNREAD`."""


class Framed(NamedTuple):
    kind: str
    """`json`, `text`, `empty`, or that of a stream."""
    events: list[Event]
    marks: frozenset[str]
    """How lines are written, where clients can see it."""

    @property
    def is_stream(self) -> bool:
        return self.kind not in ("json", "text", "empty")


def framed(answer: RecordedAnswer) -> Framed:
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
    parts = _split(kind, text)
    return parts if text.encode() == body else parts._replace(marks=parts.marks | {"no UTF-8"})


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


CHANGING: Final = frozenset(
    {
        *("id", "created", "created_at", "completed_at", "request_id", "system_fingerprint"),
        *("item_id", "response_id", "previous_response_id", "call_id", "tool_call_id", "seed"),
        *("sequence_number", "timestamp", "obfuscation", "signature", "encrypted_content"),
        # Texts of errors are for people.
        *("message", "error", "detail", "error_message", "Message", "OriginalMessage", "stack"),
    }
)
"""Members whose values differ between two answers of one server."""
TEXTS: Final = frozenset(
    {
        *("content", "text", "generated_text", "text_output", "reasoning", "reasoning_content"),
        *("thinking", "refusal", "arguments", "partial_json", "output_text", "delta"),
        "completion",
    }
)
PARTS: Final = frozenset(
    {"content", "tool_calls", "refusal", "reasoning", "reasoning_content", "thinking"}
)
"""Members of a message that a model may leave out, for instance the text next to a tool call."""
ARGUMENTS: Final = frozenset({"arguments", "partial_json"})
"""Those of them that are JSON."""
FINISHES: Final = frozenset({"finish_reason", "stop_reason", "stop_sequence", "matched_stop"})
PROMPT_COUNTS: Final = frozenset({"prompt_tokens", "input_tokens", "input_length", "cached_tokens"})
COUNTS: Final = PROMPT_COUNTS | {
    *("completion_tokens", "total_tokens", "output_tokens", "generated_tokens", "input_tokens"),
    *("reasoning_tokens", "num_generated_tokens", "prompt_token_count"),
}
_MADE_OF_TEXT: Final = frozenset(
    {
        *("logprobs", "log_prob", "logprob", "token", "tokens", "token_ids", "tool_calls"),
        *("details", "input", "bytes", "text_offset", "annotations", "token_logprobs"),
        *("top_logprobs", "cumulative_logprob", "cum_log_probs", "output_log_probs", "status"),
        *("incomplete_details", "finish_details"),
    }
)
"""Members whose values follow from the generated text."""
_OF_TOKENS: Final = frozenset({"tokens[]", "prefill[]", "top_tokens[]", "logprobs"})
"""Lists of tokens: their texts repeat the generated text."""
LOG_PROBABILITIES: Final = frozenset(
    {
        *("logprob", "log_prob", "token_logprobs", "cumulative_logprob", "cum_log_probs"),
        *("output_log_probs", "top_logprobs"),
    }
)
_FAMILIES: Final = (
    frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"}),
    frozenset({"eos_token", "length", "stop_sequence", "error"}),
    frozenset({"end_turn", "max_tokens", "stop_sequence", "tool_use"}),
)
"""Reasons that one kind of client gets."""
_SAMPLES: Final = frozenset({"temperature", "top_k", "top_p", "typical_p"})


class Node(NamedTuple):
    place: str
    """Its path, without the numbers of list members."""
    exact: str
    """Its path, with the number that a list member gives itself, or else has."""
    name: str
    value: Any

    @property
    def is_text(self) -> bool:
        """Whether it is generated text, or a part of it in a stream."""
        is_of_token = not _OF_TOKENS.isdisjoint(self.place.split("."))
        return self.name in TEXTS and isinstance(self.value, str) and not is_of_token

    @property
    def follows_text(self) -> bool:
        """Whether its value follows from the generated text."""
        parts = self.place.replace("[]", "").split(".")
        return self.name in COUNTS - PROMPT_COUNTS or not _MADE_OF_TEXT.isdisjoint(parts)


def nodes(value: Any) -> Iterator[Node]:
    """Yield a value and all that is in it, the outer ones first."""
    todo = [Node("", "", "", value)]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(list(_children(node))))


def walk(events: Iterable[Event]) -> Iterator[Node]:
    for event in events:
        if event.value is not UNREAD:
            yield from nodes(event.value)


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node.value, dict):
        is_open = node.name == "top_logprobs"
        for key, value in node.value.items():
            # Names that are tokens are no names.
            name = "*" if is_open else str(key)
            dot = "." if node.place else ""
            exact = f"{node.exact}{dot}{key}"
            yield Node(f"{node.place}{dot}{name}", exact, node.name if is_open else name, value)
    elif isinstance(node.value, list):
        for number, value in enumerate(node.value):
            own = value.get("index") if isinstance(value, dict) else None
            figure = own if isinstance(own, int) else number
            yield Node(f"{node.place}[]", f"{node.exact}[{figure}]", node.name, value)


def kind_of(value: Any) -> str:
    """Return the JSON type of a value; numbers are told apart by how they are written."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "number" if value - value == 0 else "NaN or infinity"
    kinds = {int: "integer", str: "text", dict: "object", list: "list"}
    return kinds[type(value)]


def as_float(value: float) -> float:
    """Return a number as a float; an integer may be too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_same_vocabulary(was: str, now: str) -> bool:
    return was == now or any({was, now} <= family for family in _FAMILIES)


def is_greedy(request: Request) -> bool:
    """Return whether a request wants the most likely tokens: the same text each time.

    A client's own default counts: LMI and Text Generation Inference sample only if the request
    says so, the others always sample unless it says otherwise.
    """
    body = parsed(request.body.decode("utf-8", "replace"))
    if body is UNREAD or not isinstance(body, dict):
        return False
    inner = body.get("parameters")
    given = {**body, **inner} if isinstance(inner, dict) else body
    if given.get("use_beam_search"):
        return True
    if given.get("temperature") == 0 or given.get("top_k") == 1:
        return True
    if given.get("do_sample") is not None:
        return given["do_sample"] is False
    has_default = "inputs" in body
    return has_default and _SAMPLES.isdisjoint(given)


def quoted(value: Any, most: int = 80) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"
