"""One request of each kind, and what of their answers may not change with vLLM's inside."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from lmi_backend.engines.vllm.inside.known_chats import ENOUGH
from lmi_backend.generation import Continuation, GenerateRequest, HttpRequest, Sampling
from lmi_backend.ipc import messages as msg
from lmi_backend.token_ids import pack
from tests.support.harness import Harness, RecordingSink
from tests.support.mutations import NEW
from tests.support.places import TINY

_SCHEMA: Final = {
    "type": "object",
    "properties": {"word": {"enum": ["yes"]}},
    "required": ["word"],
}
_TOOL: Final = {"type": "function", "function": {"name": "note", "parameters": _SCHEMA}}
_CHAT: Final[dict[str, Any]] = {
    "messages": [{"role": "user", "content": "Tell a story:"}], "max_tokens": 60, "ignore_eos": True
}  # fmt: skip
_TEXT: Final[dict[str, Any]] = {"prompt": "Tell a story:", "max_tokens": 60, "ignore_eos": True}
_FORMAT: Final = {"type": "json_schema", "json_schema": {"name": "word", "schema": _SCHEMA}}
_USAGE: Final = {"stream": True, "stream_options": {"include_usage": True}}
CHATS: Final = "/v1/chat/completions"
TEXTS: Final = "/v1/completions"
BODIES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "chat": (CHATS, _CHAT),
    "chat streamed": (CHATS, _CHAT | _USAGE),
    "chat with log probabilities": (CHATS, _CHAT | _USAGE | {"logprobs": True, "top_logprobs": 2}),
    "chat with a stop": (CHATS, _CHAT | _USAGE | {"stop": ["the"]}),
    "completion": (TEXTS, _TEXT),
    "completion streamed": (TEXTS, _TEXT | _USAGE),
    "completion in threes": (TEXTS, _TEXT | _USAGE | {"stream_interval": 3}),
    "completion with log probabilities": (TEXTS, _TEXT | {"logprobs": 2}),
    "tool": (CHATS, _CHAT | {"tools": [_TOOL], "tool_choice": "required", "ignore_eos": False}),
    "schema": (CHATS, _CHAT | {"response_format": _FORMAT, "ignore_eos": False}),
    "adapter": (TEXTS, _TEXT | {"model": "wrong"}),
    "two answers": (TEXTS, _TEXT | {"n": 2, "seed": 3, "temperature": 1.0}),
    "known chat": (CHATS, _CHAT | _USAGE | {"messages": [{"role": "user", "content": "Who?"}]}),
}
_KNOWN: Final = "known chat"
"""One of a kind that comes often enough to be known: see `inside/known_chats.py`."""
_LONG: Final = Sampling(60, 0.0, ignore_eos=True)
_REFUSED: Final = Sampling(9, 0.0, extra={"allowed_token_ids": [10**6]})
"""With a token that no vocabulary has: a client's mistake, by whatever name vLLM has for it."""
_VARYING: Final = ("id", "created", "system_fingerprint")


def answers(engine: Harness) -> dict[str, Any]:
    """Return what each request is answered, in a form that leaves out what may differ."""
    loading = RecordingSink()
    engine.service.adapt(msg.SetAdapter(0, "wrong", str(TINY / "lora")), loading)
    assert loading.wait().error is None, loading.error
    sinks = {name: _send(engine, *each) for name, each in BODIES.items()}
    tensors = {
        "tensors": engine.submit([GenerateRequest("Tell a story:", _LONG, stream=False)]),
        "tensors streamed": engine.submit([GenerateRequest("Tell a story:", _LONG)]),
        "tensors with log probabilities": engine.submit(
            [GenerateRequest("Tell a story:", _LONG, logprobs=2)]
        ),
        "refused tensors": engine.submit([GenerateRequest("Tell a story:", _REFUSED)]),
    }
    gone = [_send(engine, CHATS, _CHAT | _USAGE | {"max_tokens": 900}), _gone(engine)]
    gone[0].is_gone = True
    found = {name: _body(sink.wait()) for name, sink in sinks.items()}
    found |= {name: _tensors(sink.wait()) for name, sink in tensors.items()}
    found |= {f"cancelled {n}": type(sink.wait().error).__name__ for n, sink in enumerate(gone)}
    for _ in range(ENOUGH):
        found[_KNOWN] = _body(_send(engine, *BODIES[_KNOWN]).wait())
    found["marked"] = _body(_send(engine, CHATS, _CHAT, {"x-mutation": "1"}).wait())
    ids = [
        token.id
        for each in tensors["tensors with log probabilities"].deltas
        for token in each.tokens
    ]
    found["resumed"] = _resumed(engine, ids)
    return found


def difference(actual: Any, expected: Any, place: str = "answer") -> str:
    """Return where two answers differ first, and how; empty where they do not.

    Log probabilities have noise: rows of a batch of another size are summed in another order.
    1e-3 is far above what that does.
    """
    if isinstance(actual, float) and isinstance(expected, float):
        is_same = math.isclose(actual, expected, abs_tol=1e-3)
        return "" if is_same else f"{place}: {actual!r}, not {expected!r}"
    if isinstance(actual, dict) and isinstance(expected, dict) and actual.keys() == expected.keys():
        parts = [(f"{place}.{key}", each, expected[key]) for key, each in actual.items()]
    elif isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        parts = [
            (f"{place}[{n}]", *pair) for n, pair in enumerate(zip(actual, expected, strict=True))
        ]
    else:
        return "" if actual == expected else f"{place}: {actual!r}, not {expected!r}"
    return next(filter(None, (difference(a, b, where) for where, a, b in parts)), "")


def _gone(engine: Harness) -> RecordingSink:
    sink = engine.start("Tell a story:", max_tokens=900, ignore_eos=True)
    sink.is_gone = True
    return sink


def _send(
    engine: Harness, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> RecordingSink:
    data = json.dumps({"temperature": 0} | body).encode()
    return engine.submit(HttpRequest(path, data, headers or {}))


def _resumed(engine: Harness, ids: list[int]) -> Any:
    """Return what follows tokens that another worker generated, or the error that says why not."""
    groups = b"".join(pack([each]) for each in ids[:20])
    request = GenerateRequest("Tell a story:", _LONG, continuation=Continuation(groups))
    sink = engine.submit([request]).wait()
    return f"{sink.error}" if sink.error else _tensors(sink)


def _tensors(sink: RecordingSink) -> Any:
    if sink.error:
        return f"error: {sink.error}"
    last, tokens = sink.deltas[-1], [token for each in sink.deltas for token in each.tokens]
    shown = [(token.id, token.text, token.rank, [top.id for top in token.top]) for token in tokens]
    count = sum(each.num_tokens for each in sink.deltas)
    return [sink.text, count, last.finish_reason, last.num_prompt_tokens, shown]


def _body(sink: RecordingSink) -> Any:
    if sink.error:
        return f"error: {sink.error}"
    data = b"".join(chunk.data for chunk in sink.deltas).decode()
    head = sink.deltas[0]
    mark = head.headers.get("x-mutation", "")
    if not data.startswith("data: "):
        return [head.status, mark, _plain(json.loads(data))]
    lines = [line[6:] for line in data.splitlines() if line]
    events = [json.loads(line) for line in lines[:-1]]
    if failed := [event for event in events if "choices" not in event]:
        return f"error: {failed[0]}"
    return [head.status, mark, lines[-1], _members(events), _joined(events)]


def _plain(value: Any) -> Any:
    """Return a value of JSON without what differs from time to time."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key not in (*_VARYING, NEW)}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def _members(events: list[Any]) -> list[str]:
    """Return which members the events have; of an unknown one whether it is as vLLM has it."""
    values = [each[NEW] for each in events if NEW in each]
    kinds = {"": not values, "null": set(values) == {None}, "a constant": set(values) == {7}}
    is_rising = values == sorted(set(values)) if all(each is not None for each in values) else False
    kind = next(
        (name for name, is_so in kinds.items() if is_so), "a number" if is_rising else "wrong"
    )
    count = "" if len(values) in (0, len(events)) else "of some"
    known = sorted({key for each in events for key in each if key != NEW})
    return [f"{kind}{count}", *known]


def _joined(events: list[Any]) -> Any:
    """Return what the events of a stream tell together: their borders may differ."""
    found: dict[int, dict[str, Any]] = {}
    usage = None
    for event in events:
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            of = found.setdefault(choice["index"], {"text": "", "logprobs": [], "role": []})
            delta = choice.get("delta", {})
            of["text"] += choice.get("text") or delta.get("content") or ""
            of["role"] += [delta["role"]] if "role" in delta else []
            of["logprobs"] += (choice.get("logprobs") or {}).get("content") or []
            of["finish_reason"] = choice.get("finish_reason")
            of["stop_reason"] = choice.get("stop_reason")
            of["members"] = sorted({*of.get("members", ()), *choice, *delta} - {NEW})
    return [found, usage]
