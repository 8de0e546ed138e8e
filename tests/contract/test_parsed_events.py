"""Chats that a parser of tools reads have the events that vLLM's server writes of them."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.test_events import CHAT, by_the_server, post
from tests.support.interpreter.releases import vllm_release

# The worker whose server parses tools.
pytestmark = [
    pytest.mark.parametrize("engine", ["vllm"], indirect=True),
    pytest.mark.skipif(vllm_release() < (0, 30), reason="an older vLLM has other parsers"),
]

BODIES = 160
AT_ONCE = 40
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]
CALL = r'<tool_call>\n\{"name": "weather", "arguments": \{"city": "[a-z]{1,12}"\}\}\n</tool_call>'
TEXT = "[a-z ]{12,24}"
PROMPTS = ("The capital of France is", "Count to one hundred:", "née à Zürich — 東京 🗼")
SOME: tuple[dict[str, Any], ...] = (
    {"ignore_eos": True},
    {"stop": ["a", "the "]},
    {"min_tokens": 1},
    {"skip_special_tokens": False},
    {"include_reasoning": False},
    {"parallel_tool_calls": False},
    {"n": 2},
    {"return_token_ids": True},
    {"logprobs": True, "top_logprobs": 2},
    {"stream_interval": 3},
)
OF_TOKENS = {"logprobs", "top_logprobs", "return_token_ids"}
NOT_PLAIN = OF_TOKENS | {"n"}


def body(dice: random.Random) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "model": "lmi",
        "stream": True,
        "max_tokens": dice.randint(6, 20),
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": dice.choice(PROMPTS)}],
    }
    asked |= dice.choice(({"temperature": 0}, {"temperature": 2.0, "seed": dice.randint(0, 999)}))
    asked |= dice.choice(({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}))
    for more in dice.sample(SOME, dice.choice((0, 0, 1, 2))):
        asked |= more
    return asked


def calling(dice: random.Random) -> dict[str, Any]:
    """Return a body whose answer says something, and then calls a tool once or twice."""
    form = dice.choice((CALL, TEXT + CALL, TEXT + CALL + CALL, TEXT + CALL + TEXT, TEXT + "<tool"))
    own = {"tools": TOOLS, "max_tokens": dice.choice((24, 200)), "seed": dice.randint(0, 999)}
    asked = body(dice) | own | {"structured_outputs": {"regex": form}, "temperature": 1.0}
    return {name: asked[name] for name in asked if name not in NOT_PLAIN | {"tool_choice"}}


def streams(engine: Any, bodies: list[dict[str, Any]]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield bodies with the chunks of our answer, and those of the server's."""
    for start in range(0, len(bodies), AT_ONCE // 2):
        some = bodies[start : start + AT_ONCE // 2]
        asked = [
            [engine.submit(post(CHAT, each)), engine.submit(post(CHAT, by_the_server(each)))]
            for each in some
        ]
        for each, (ours, theirs) in zip(some, asked, strict=True):
            yield each, ours.wait().deltas, theirs.wait().deltas


def shown(chunks: list[Any]) -> tuple[Any, ...]:
    """Return what a stream tells, however many tokens an event has."""
    data = b"".join(chunk.data for chunk in chunks)
    if not data.endswith(b"data: [DONE]\n\n"):
        return (data,)
    texts: dict[str, str] = {}
    calls: dict[tuple[int, int], dict[str, str]] = {}
    ends, around, usage = [], set(), None
    for line in data.decode().split("\n\n")[:-2]:
        event = json.loads(line.removeprefix("data: "))
        usage = event.pop("usage", usage)
        for choice in event.pop("choices"):
            delta, end = choice.pop("delta"), choice.pop("finish_reason")
            ends += [(choice["index"], end, choice.pop("stop_reason"))] if end else []
            for name in ("role", "content", "reasoning"):
                key = f"{choice['index']} {name}"
                texts[key] = texts.get(key, "") + (delta.pop(name, None) or "")
            for call in delta.pop("tool_calls", ()):
                of_it = calls.setdefault((choice["index"], call["index"]), {"arguments": ""})
                of_it |= {"name": call["function"]["name"]} if call["function"].get("name") else {}
                of_it["arguments"] += call["function"].get("arguments") or ""
                assert re.fullmatch(r"chatcmpl-tool-\w+|", call.get("id") or "")
            assert not delta
            for name in ("logprobs", "token_ids", "prompt_token_ids", "stop_reason"):
                choice.pop(name, None)
            around.add(json.dumps(choice))
        around.add(
            json.dumps({name: event[name] for name in event if name not in ("id", "created")})
        )
    return texts, calls, sorted(ends), around, usage


def is_written_here(chunks: list[Any]) -> bool:
    """Tell whether a stream of several chunks has its head once."""
    return not all(chunk.headers for chunk in chunks)


def is_plain(asked: dict[str, Any]) -> bool:
    """Tell whether the server leaves the events of a body to us."""
    # Without reasoning vLLM leaves out what tells of single tokens, but it generates that.
    is_filtered = "tools" in asked and asked.get("parallel_tool_calls") is False
    return not (asked.keys() & NOT_PLAIN or is_filtered)


def test_chats_with_and_without_tools_have_the_servers_events(engine: Any) -> None:
    dice = random.Random(20261127)
    for asked, ours, theirs in streams(engine, [body(dice) for _ in range(BODIES)]):
        assert not is_written_here(theirs), asked
        assert shown(ours) == shown(theirs), asked
        assert sum(chunk.num_tokens for chunk in ours) == sum(chunk.num_tokens for chunk in theirs)
        if len(ours) > 1:
            assert is_written_here(ours) == is_plain(asked), asked


def test_tool_calls_are_those_of_the_server(engine: Any) -> None:
    dice = random.Random(20261128)
    found: dict[str, int] = {}
    for asked, ours, theirs in streams(engine, [calling(dice) for _ in range(BODIES // 2)]):
        assert shown(ours) == shown(theirs), asked
        if len(ours) > 1:
            assert is_written_here(ours) == is_plain(asked), asked
        texts, calls, *_ = shown(ours)
        kind = f"{len(calls)} calls, {'text' if texts.get('0 content') else 'no text'}"
        found[kind] = found.get(kind, 0) + 1
    assert found.keys() >= {
        "0 calls, text", "1 calls, no text", "1 calls, text", "2 calls, text"
    }, found  # fmt: skip
