"""The middle of a plain stream, which vLLM's server does not write, has the bytes it writes."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.generation import HttpRequest

# The worker whose server parses no tools: there, chats are plain too.
pytestmark = pytest.mark.parametrize("engine", ["vllm mpi"], indirect=True)

BODIES = 1000
NOT_PLAIN = ("n", "logprobs", "return_token_ids")
AT_ONCE = 80
MIDDLE = 3
"""Events between the first and the last of an answer that has a middle."""
WRITTEN = 0.4
"""Share of such answers whose middle is written here, at least. An engine that is fast beside its
server hands over all tokens before the first event is written; the server writes those itself."""
SEEN = 10
"""Answers to bodies of one kind, of which one at least has to be written here."""
PROMPTS = (
    "The capital of France is", "Count to one hundred:", "Tell a story:", 'Say "x": {"text":"y"}',
    "née à Zürich — 東京 🗼\u2028\\n\t\"content\":\"a\"", "0 1 2 3 4 5", "\x7f\x01", "<b>&amp;</b>",
)  # fmt: skip
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
APART = "stream_interval"
EVENT = re.compile(rb'^(.*"(?:content|text)":)("(?:[^"\\]|\\.)*")(.*)$', re.DOTALL)

FINISHED = re.compile(rb'"finish_reason":"\w+","stop_reason":[^,]*,')


def body(dice: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a path and a body of a stream; most are plain."""
    path = dice.choice((CHAT, COMPLETIONS))
    prompt = dice.choice(PROMPTS)
    asked: dict[str, Any] = {"model": "lmi", "stream": True, "max_tokens": dice.randint(1, 9)}
    asked["stream_options"] = {"include_usage": True}
    if path == CHAT:
        asked["messages"] = [{"role": "user", "content": prompt}]
    else:
        asked["prompt"] = prompt
        asked |= dice.choice(({}, {}, {"echo": True}))
    asked |= dice.choice(({"temperature": 0}, {"temperature": 2.0, "seed": dice.randint(0, 999)}))
    some: tuple[dict[str, Any], ...] = (
        {"ignore_eos": True},
        {"stop": ["a", "the "]},
        {"stop": ["e"], "include_stop_str_in_output": True},
        {"min_tokens": 1},
        {"skip_special_tokens": False},
        {"frequency_penalty": 1.0},
        {"user": "née", "service_tier": "auto"},
        {"n": 2},
        {"return_token_ids": True},
        {"logprobs": True, "top_logprobs": 2} if path == CHAT else {"logprobs": 2},
        {"request_id": 'a"text":"b'},
        {"stream_interval": dice.randint(2, 5)},
    )
    for more in dice.sample(some, dice.choice((0, 1, 1, 2, 3))):
        asked |= more
    if asked.get("echo"):
        # With LoRA on a CPU, vLLM 0.32's core dies of a prompt's log probabilities.
        asked.pop("logprobs", None)
    return path, asked


def by_the_server(asked: dict[str, Any]) -> dict[str, Any]:
    """Return a body that the server answers by itself: each event tells the usage too."""
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    # Two requests of one id at once are not plain.
    own_id = {"request_id": asked["request_id"] + "2"} if "request_id" in asked else {}
    return asked | options | own_id


def events(data: bytes) -> list[bytes]:
    """Return the events, without ids and times; of a refusal, the whole."""
    if not data.endswith(b"\n\n"):
        return [data]
    data = re.sub(rb'"id":"(chatcmpl|cmpl)-[^,]*",', b'"id":"1",', data)
    return re.sub(rb'"created":\d+', b'"created":0', data).split(b"\n\n")[:-1]


def content_of(events: list[bytes]) -> tuple[list[bytes], list[bytes], str]:
    """Return what events tell, however many tokens an event has: an engine may hand over several.

    Returns:
        JSON around the text of each event in the middle; that of the others, in order; the text.
    """
    middle, others, texts = [], [], []
    for event in events:
        found = EVENT.match(event)
        around = found[1] + found[3] if found else event
        texts.append(json.loads(found[2]) if found else "")
        has_prompt = b'"prompt_token_ids":[' in event
        is_first = b'"role"' in event or has_prompt
        if found and b'"finish_reason":null' in event and not is_first:
            middle.append(around)
        elif has_prompt and FINISHED.search(around):
            # All tokens came at once: elsewhere the same are a first and a last event.
            others.append(FINISHED.sub(b'"finish_reason":null,"stop_reason":null,', around))
            others.append(
                re.sub(rb'"prompt_token_ids":\[[^]]*]', b'"prompt_token_ids":null', around)
            )
        else:
            others.append(around)
    return middle, others, "".join(texts)


def without_usage(found: list[bytes]) -> list[bytes]:
    """Take out what the body was changed for."""
    if len(found) == 1:
        return found
    *others, last, done = found
    assert b'"choices":[]' in last
    return [*(re.sub(rb',"usage":{[^}]*}', b"", event) for event in others), last, done]


def pairs(engine: Any) -> Iterator[tuple[str, dict[str, Any], list[Any], list[Any]]]:
    dice = random.Random(20261122)
    for _ in range(2 * BODIES // AT_ONCE):
        some = [body(dice) for _ in range(AT_ONCE // 2)]
        streams = [
            (engine.submit(_call(path, asked)), engine.submit(_call(path, by_the_server(asked))))
            for path, asked in some
        ]
        for (path, asked), (ours, theirs) in zip(some, streams, strict=True):
            yield path, asked, ours.wait().deltas, theirs.wait().deltas


def _call(path: str, asked: dict[str, Any]) -> HttpRequest:
    return HttpRequest(path, json.dumps(asked).encode())


def test_a_thousand_bodies_have_the_events_that_the_server_writes(engine: Any) -> None:
    # Of each body whose answer by the server has a middle: whether ours was written here.
    written: dict[str, list[bool]] = {CHAT: [], COMPLETIONS: [], APART: []}
    of_kind: dict[tuple[str, str], list[bool]] = {}
    for path, asked, ours, theirs in pairs(engine):
        assert all(chunk.headers for chunk in theirs), asked
        assert sum(chunk.num_tokens for chunk in ours) == sum(c.num_tokens for c in theirs), asked
        is_written = not all(chunk.headers for chunk in ours)
        if not asked.keys().isdisjoint(NOT_PLAIN):
            assert not is_written, asked
            continue
        written_events, expected = (
            events(b"".join(c.data for c in each)) for each in (ours, theirs)
        )
        expected = without_usage(expected)
        middle, *others = content_of(written_events)
        expected_middle, *expected_others = content_of(expected)
        assert others == expected_others, (path, asked)
        assert len({*middle, *expected_middle}) <= 1, (path, asked)
        is_apart = APART in asked
        if len(expected_middle) >= MIDDLE:
            written[APART if is_apart else path].append(is_written)
            # Two requests of one id at once are not plain.
            for name in asked.keys() - {"request_id"}:
                of_kind.setdefault((path, name), []).append(is_written)
        if is_written and is_apart:
            sizes = [chunk.num_tokens for chunk in ours if not chunk.headers]
            assert min(sizes) >= asked[APART], asked
    never = [kind for kind, each in of_kind.items() if len(each) >= SEEN and not any(each)]
    assert never == []
    assert len(of_kind) > 2 * SEEN
    # How many answers have a middle depends on the model, which each kind of processor trains
    # otherwise; and of two answers to one body the engine may hand over more tokens at once.
    for kind, each in written.items():
        assert sum(each) > WRITTEN * len(each), kind
    assert min(len(written[CHAT]), len(written[COMPLETIONS])) > BODIES / 20
    assert written[APART]
