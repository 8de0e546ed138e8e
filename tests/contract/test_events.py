"""Plain streams, which vLLM's server does not write, have the bytes that it writes."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.generation import HttpRequest

# The worker whose server parses no tools: there, chats are plain too.
pytestmark = pytest.mark.parametrize("engine", ["vllm mpi"], indirect=True)

BODIES = 320
NOT_PLAIN = ("n", "logprobs", "return_token_ids", "echo")
AT_ONCE = 80
MIDDLE = 3
"""Events between the first and the last of an answer that has a middle."""
PROMPTS = (
    "The capital of France is", "Count to one hundred:", "Tell a story:", 'Say "x": {"text":"y"}',
    "née à Zürich — 東京 🗼\u2028\\n\t\"content\":\"a\"", "0 1 2 3 4 5", "\x7f\x01", "<b>&amp;</b>",
)  # fmt: skip
TURNS = [{"role": "user", "content": "née"}, {"role": "assistant", "content": ""}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
APART = "stream_interval"
EVENT = re.compile(rb'^(.*"(?:content|text)":)("(?:[^"\\]|\\.)*")(.*)$', re.DOTALL)

FINISHED = re.compile(rb'"finish_reason":"\w+","stop_reason":[^,]*,')
REFUSED: tuple[dict[str, Any], ...] = (
    {"messages": []},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "user", "content": 5}]},
    {"messages": [{"role": "user", "content": "a " * 6000}]},
    {"max_tokens": 0},
    {"max_tokens": 100_000},
    {"max_tokens": "many"},
    {"temperature": -1},
    {"top_p": 2},
    {"stop": [""]},
    {"min_tokens": 9},
    {"logit_bias": {"10000000": 1}},
    {"model": "none"},
    {"seed": 1 << 70},
    {"tool_choice": "auto"},
)
"""What the server refuses, before or in the stream."""
UNUSUAL: tuple[list[dict[str, Any]], ...] = (
    [{"role": "tool", "content": "a", "tool_call_id": "1"}],
    [{"role": "someone", "content": "a"}],
    [{"role": "user", "name": "bob", "content": "a"}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    [{"role": "assistant", "content": None}],
)


def body(dice: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a path and a body of a stream; most are plain."""
    path = dice.choice((CHAT, COMPLETIONS))
    prompt = dice.choice(PROMPTS)
    asked: dict[str, Any] = {"model": "lmi", "stream": True, "max_tokens": dice.randint(1, 9)}
    asked["stream_options"] = {"include_usage": True}
    if path == CHAT:
        earlier = [{"role": "system", "content": "a"}, *TURNS][: dice.choice((0, 0, 1, 3))]
        asked["messages"] = [*earlier, {"role": "user", "content": prompt}]
    else:
        asked["prompt"] = prompt
        asked |= dice.choice(({}, {}, {"echo": True}))
    asked |= dice.choice(({"temperature": 0}, {"temperature": 2.0, "seed": dice.randint(0, 999)}))
    some: tuple[dict[str, Any], ...] = (
        {"ignore_eos": True},
        {"stop": ["a", "the "]},
        {"stop": ["e"], "include_stop_str_in_output": True},
        {"stop": ["never"], "top_k": 3},
        {"min_tokens": 1},
        {"skip_special_tokens": False},
        {"frequency_penalty": 1.0, "presence_penalty": -1},
        {"repetition_penalty": 1.3},
        {"logit_bias": {"300": 100, "301": -5.5}},
        {"stop_token_ids": [300, 301, 302]},
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
    return asked | options


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
            (engine.submit(post(path, asked)), engine.submit(post(path, by_the_server(asked))))
            for path, asked in some
        ]
        for (path, asked), (ours, theirs) in zip(some, streams, strict=True):
            yield path, asked, ours.wait().deltas, theirs.wait().deltas


def post(path: str, asked: dict[str, Any]) -> HttpRequest:
    return HttpRequest(path, json.dumps(asked).encode())


def test_bodies_have_the_events_that_the_server_writes(engine: Any) -> None:
    kinds: set[tuple[str, str]] = set()
    num_middles = 0
    for path, asked, ours, theirs in pairs(engine):
        assert all(chunk.headers for chunk in theirs), asked
        assert sum(chunk.num_tokens for chunk in ours) == sum(c.num_tokens for c in theirs), asked
        is_plain = asked.keys().isdisjoint(NOT_PLAIN)
        if len(ours) > 1:
            # Those that are written here have their head once.
            assert is_plain != all(chunk.headers for chunk in ours), asked
        if not is_plain:
            continue
        written, expected = (events(b"".join(c.data for c in each)) for each in (ours, theirs))
        middle, *others = content_of(written)
        expected_middle, *expected_others = content_of(without_usage(expected))
        assert others == expected_others, (path, asked)
        assert len({*middle, *expected_middle}) <= 1, (path, asked)
        if len(expected_middle) >= MIDDLE:
            num_middles += 1
            kinds |= {(path, name) for name in asked}
        if APART in asked:
            assert all(chunk.num_tokens >= asked[APART] for chunk in ours[1:-1]), asked
    # How many answers have a middle depends on the model, which each kind of processor trains
    # otherwise.
    assert num_middles > BODIES / 10
    assert len(kinds) > 20


def content(chunks: list[Any], *, has_usage: bool = False) -> Any:
    """Return what an answer tells, wherever its events are cut."""
    found = events(b"".join(each.data for each in chunks))
    is_stream = found[-1] == b"data: [DONE]" and b'"choices":[]' in found[-2]
    middle, *others = content_of(without_usage(found) if has_usage and is_stream else found)
    assert len(set(middle)) <= 1
    counts = (sum(each.num_tokens for each in chunks), chunks[-1].num_prompt_tokens)
    return chunks[0].status, chunks[0].headers.get("content-type"), others, counts


def test_what_the_server_refuses_is_refused_in_its_words(engine: Any) -> None:
    good: dict[str, Any] = {"model": "lmi", "stream": True, "max_tokens": 8, "temperature": 0}
    good |= {"stream_options": {"include_usage": True}}
    hello = good | {"messages": [{"role": "user", "content": "a"}]}
    bodies = [hello, *(hello | each for each in REFUSED)]
    for each in bodies + [good | {"messages": talk} for talk in UNUSUAL]:
        ours, theirs = (engine.submit(post(CHAT, one)) for one in (each, by_the_server(each)))
        assert content(ours.wait().deltas) == content(theirs.wait().deltas, has_usage=True), each
