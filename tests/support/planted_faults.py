"""Faults that `replay` must find, and the requests that show them to the echo engine."""

from collections.abc import Callable
from functools import reduce
from operator import delitem, setitem
from typing import Any

from lmi_backend.migrate import kinds
from tests.support.faulty_proxy import Plant, Planted, in_event, in_events, in_json

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


def _at(path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Callable[[Any], None]:
    """Return what changes a member of an answer, given its object and its name."""
    return lambda read: change(reduce(lambda inner, name: inner[name], path[:-1], read), path[-1])


def put(*path: Any, value: Any) -> Callable[[Any], None]:
    """Return what sets a member of an answer."""
    return _at(path, lambda inner, name: setitem(inner, name, value))


def drop(*path: Any) -> Callable[[Any], None]:
    """Return what removes a member of an answer."""
    return _at(path, delitem)


def add(amount: float, *path: Any) -> Callable[[Any], None]:
    """Return what adds to a number of an answer."""
    return _at(path, lambda inner, name: setitem(inner, name, inner[name] + amount))


def field(name: str, value: Any) -> Plant:
    """Return what sets a field of the whole answer."""
    return lambda answer: setattr(answer, name, value)


def header(name: str, value: str | None = None) -> Plant:
    """Return what sets a header, or removes it."""

    def plant(answer: Planted) -> None:
        answer.headers.pop(name, None)
        if value is not None:
            answer.headers[name] = value

    return plant


def half(answer: Planted) -> None:
    answer.body = answer.body[: len(answer.body) // 2]


def without_blank(answer: Planted) -> None:
    answer.body = answer.body.replace(b"data: ", b"data:")


def unfinished(answer: Planted) -> None:
    answer.body = answer.body.rstrip(b"\n")


def swapped(first: int, second: int) -> Plant:
    def change(events: list[bytes]) -> None:
        events[first], events[second] = events[second], events[first]

    return in_events(change)


CHOICE = ("choices", 0)
FAULTS: dict[str, tuple[str, str, Plant]] = {
    "a missing count": ("chat", kinds.MISSING, in_json(drop("usage", "total_tokens"))),
    "a missing usage": ("chat", kinds.MISSING, in_json(drop("usage"))),
    "a missing reason": ("chat", kinds.MISSING, in_json(drop(*CHOICE, "finish_reason"))),
    "a missing id": ("chat", kinds.MISSING, in_json(drop("id"))),
    "a missing role": ("chat", kinds.MISSING, in_json(drop(*CHOICE, "message", "role"))),
    "a number as a text": ("chat", kinds.TYPE, in_json(put("created", value="1"))),
    "a count as a text": ("chat", kinds.TYPE, in_json(put("usage", "prompt_tokens", value="2"))),
    "usage off by one": ("chat", kinds.USAGE, in_json(add(1, "usage", "completion_tokens"))),
    "prompt off by one": ("chat", kinds.USAGE, in_json(add(1, "usage", "prompt_tokens"))),
    "a wrong reason": ("chat", kinds.FINISH, in_json(put(*CHOICE, "finish_reason", value="stop"))),
    "LMI's reason": ("chat", kinds.FINISH, in_json(put(*CHOICE, "finish_reason", value="eos"))),
    "no reason": ("chat", kinds.TYPE, in_json(put(*CHOICE, "finish_reason", value=None))),
    "another object": ("chat", kinds.VALUE, in_json(put("object", value="completion"))),
    "another role": ("chat", kinds.VALUE, in_json(put(*CHOICE, "message", "role", value="user"))),
    "another model": ("chat", kinds.VALUE, in_json(put("model", value="lmi"))),
    "a fraction": ("chat", kinds.NUMBER_FORM, in_json(put(*CHOICE, "index", value=0.0))),
    "other words": ("chat", kinds.GREEDY, in_json(put(*CHOICE, "message", "content", value="no"))),
    "no content": ("chat", kinds.TYPE, in_json(put(*CHOICE, "message", "content", value=None))),
    "a new member": ("chat", kinds.ADDED, in_json(put("more", value=1))),
    "null for absent": ("chat", kinds.NULL, in_json(put(*CHOICE, "logprobs", value=None))),
    "no choice": ("chat", kinds.LENGTH, in_json(put("choices", value=[]))),
    "a choice for a list": ("chat", kinds.TYPE, in_json(put("choices", value={}))),
    "a list for an object": ("chat", kinds.TYPE, in_json(lambda read: [read])),
    "a header gone": ("chat", kinds.HEADER, header("x-request-id")),
    "a plain text": ("chat", kinds.CONTENT_TYPE, header("content-type", "text/plain")),
    "a failure": ("chat", kinds.STATUS, field("status", 500)),
    "half a body": ("chat", kinds.BODY, half),
    "an empty body": ("chat", kinds.BODY, field("body", b"")),
    "a cut connection": ("chat", kinds.UNANSWERED, field("is_cut", True)),
    "a lost [DONE]": ("chat stream", kinds.FRAMING, in_events(lambda events: events[:-1])),
    "two [DONE]": ("chat stream", kinds.FRAMING, in_events(lambda events: [*events, events[-1]])),
    "texts swapped": ("chat stream", kinds.GREEDY, swapped(0, 1)),
    "the end before": ("chat stream", kinds.ORDER, swapped(-3, -2)),
    "[DONE] before": ("chat stream", kinds.ORDER, swapped(-1, -2)),
    "a lost event": ("chat stream", kinds.GREEDY, in_events(lambda events: events[1:])),
    "a doubled event": ("chat stream", kinds.GREEDY, in_events(lambda e: [e[0], *e])),
    "no blank": ("chat stream", kinds.FRAMING, without_blank),
    "no last line": ("chat stream", kinds.FRAMING, unfinished),
    "a named event": (
        "chat stream",
        kinds.FRAMING,
        in_events(lambda events: [b"event: x\n" + events[0], *events[1:]]),
    ),
    "one id missing": ("chat stream", kinds.MISSING, in_event(0, drop("id"))),
    "another kind": ("chat stream", kinds.VALUE, in_event(0, put("object", value="x"))),
    "a text in an event": ("chat stream", kinds.TYPE, in_event(1, put("created", value="1"))),
    "usage of a stream": (
        "chat stream",
        kinds.USAGE,
        in_event(-2, add(1, "usage", "total_tokens")),
    ),
    "JSON for a stream": (
        "chat stream",
        kinds.CONTENT_TYPE,
        header("content-type", "application/json"),
    ),
    "a text as a number": ("completion", kinds.TYPE, in_json(put(*CHOICE, "text", value=1))),
    "200 for 404": ("unknown model", kinds.STATUS, field("status", 200)),
    "an error as a text": ("unknown model", kinds.TYPE, in_json(put("error", value="no"))),
    "a code as a text": ("unknown model", kinds.TYPE, in_json(put("error", "code", value="404"))),
    "another error": ("unknown model", kinds.VALUE, in_json(put("error", "type", value="x"))),
    "200 for 424": ("wrong LMI", kinds.STATUS, field("status", 200)),
    "no code": ("wrong LMI", kinds.MISSING, in_json(drop("code"))),
    "less likely": (
        "LMI",
        kinds.LOG_PROBABILITY,
        in_json(add(-0.3, "details", "tokens", 0, "log_prob")),
    ),
    "not a number": (
        "LMI",
        kinds.TYPE,
        in_json(put("details", "tokens", 0, "log_prob", value=float("nan"))),
    ),
    "one token more": ("LMI", kinds.USAGE, in_json(add(1, "details", "generated_tokens"))),
    "one token less": ("LMI", kinds.LENGTH, in_json(drop("details", "tokens", 0))),
    "OpenAI's reason": (
        "LMI",
        kinds.FINISH,
        in_json(put("details", "finish_reason", value="stop")),
    ),
    "no last text": (
        "LMI stream",
        kinds.MISSING,
        lambda answer: setattr(answer, "body", answer.body.replace(b"generated_text", b"text")),
    ),
    "lines as JSON": ("LMI stream", kinds.CONTENT_TYPE, header("content-type", "application/json")),
    "null details": ("TGI", kinds.TYPE, in_json(put("details", value=None))),
    "a wrong number": ("TGI stream", kinds.VALUE, in_event(-1, add(1, "index"))),
    "no text": ("Triton", kinds.MISSING, in_json(drop("text_output"))),
    "Triton's text": ("Triton stream", kinds.GREEDY, in_event(0, put("text_output", value="x"))),
    "a broken message": ("SageMaker stream", kinds.FRAMING, half),
}
