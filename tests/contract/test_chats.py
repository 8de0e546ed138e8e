"""Chats that pass by vLLM's server, beside the same that it writes."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.generation import HttpRequest
from tests.contract.test_events import (
    PROMPTS,
    by_the_server,
    content_of,
    events,
    without_usage,
)

# The worker whose server parses no tools: there, chats are plain.
pytestmark = pytest.mark.parametrize("engine", ["vllm mpi"], indirect=True)

CHATS = "/v1/chat/completions"
USAGE = {"stream_options": {"include_usage": True}}
KINDS = 20
COMPARED = 3
SOME: tuple[dict[str, Any], ...] = (
    {"temperature": 2.0, "seed": 7, "top_p": 0.9},
    {"temperature": 0.7, "seed": 13, "top_k": 5, "min_p": 0.1},
    {"ignore_eos": True},
    {"stop": ["a", "the "]},
    {"stop": "e", "include_stop_str_in_output": True},
    {"min_tokens": 2},
    {"skip_special_tokens": False},
    {"frequency_penalty": 1.0, "presence_penalty": -1},
    {"repetition_penalty": 1.3},
    {"logit_bias": {"300": 100, "301": -5.5}},
    {"user": "née"},
    {"n": 1, "logprobs": False, "tool_choice": "none"},
    {"max_tokens": 1},
    {"max_completion_tokens": 4},
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"stop_token_ids": [300, 301, 302]},
)
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


def talks(dice: random.Random) -> list[dict[str, Any]]:
    """Return the messages of a chat."""
    talk = [{"role": "system", "content": dice.choice(PROMPTS)}] if dice.random() < 0.3 else []
    for _ in range(dice.randrange(3)):
        talk.append({"role": "user", "content": dice.choice(PROMPTS)})
        talk.append({"role": "assistant", "content": dice.choice((*PROMPTS, ""))})
    return [*talk, {"role": "user", "content": f"{dice.choice(PROMPTS)} {dice.randrange(999)}"}]


def kinds(dice: random.Random) -> Iterator[dict[str, Any]]:
    """Yield what bodies have besides their messages."""
    for number in range(KINDS):
        asked: dict[str, Any] = {"model": "lmi", "stream": True, "temperature": 0, **USAGE}
        asked |= {"max_tokens": dice.randint(3, 9), "ignore_eos": dice.random() < 0.5}
        for more in [SOME[number % len(SOME)], *dice.sample(SOME, dice.choice((0, 1, 2)))]:
            asked |= more
        names = list(asked)
        dice.shuffle(names)
        yield {name: asked[name] for name in names}


def start(engine: Any, body: dict[str, Any]) -> Any:
    return engine.submit(HttpRequest(CHATS, json.dumps(body).encode()))


def content(chunks: list[Any], *, has_usage: bool = False) -> Any:
    """Return what an answer tells, wherever its events are cut."""
    found = events(b"".join(each.data for each in chunks))
    is_stream = found[-1] == b"data: [DONE]" and b'"choices":[]' in found[-2]
    middle, others, text = content_of(without_usage(found) if has_usage and is_stream else found)
    assert len(set(middle)) <= 1
    counts = (sum(each.num_tokens for each in chunks), chunks[-1].num_prompt_tokens)
    return chunks[0].status, chunks[0].headers.get("content-type"), others, text, counts


def compare(engine: Any, bodies: list[dict[str, Any]]) -> None:
    """Compare these answers with those that the server writes."""
    ours = [start(engine, body) for body in bodies]
    answers = [sink.wait().deltas for sink in ours]
    theirs = [start(engine, by_the_server(body)) for body in bodies]
    for body, answer, sink in zip(bodies, answers, theirs, strict=True):
        assert content(answer) == content(sink.wait().deltas, has_usage=True), body


def test_chats_have_the_bytes_of_the_server(engine: Any) -> None:
    """The first of a kind passes through the server, the others do not."""
    dice = random.Random(20261127)
    asked = list(kinds(dice))
    for _ in range(COMPARED):
        compare(engine, [each | {"messages": talks(dice)} for each in asked])


def test_ids_and_times_are_its_own(engine: Any) -> None:
    asked = {"model": "lmi", "stream": True, "max_tokens": 20, "ignore_eos": True, "seed": 11}
    ids = []
    for number in range(3):
        body = asked | {"messages": [{"role": "user", "content": f"a {number}"}]}
        chunks = start(engine, body).wait().deltas
        *found, done = b"".join(each.data for each in chunks).split(b"\n\n")[:-1]
        assert done == b"data: [DONE]"
        (own,) = {json.loads(each.removeprefix(b"data: "))["id"] for each in found}
        ids.append(own)
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {len(ids[0])}


def test_a_limit_is_what_the_prompt_leaves(engine: Any) -> None:
    asked = {"model": "lmi", "stream": True, "temperature": 0, "stop": ["a"], "top_k": 3, **USAGE}
    dice = random.Random(3)
    for _ in range(COMPARED):
        compare(engine, [asked | {"messages": talks(dice)} for _ in range(2)])


def test_what_the_server_refuses_is_refused_in_its_words(engine: Any) -> None:
    """However often: nothing is kept of it."""
    good = {"model": "lmi", "stream": True, "max_tokens": 8, "temperature": 0, **USAGE}
    hello = {"messages": [{"role": "user", "content": "a"}]}
    unusual = [good | {"messages": talk} for talk in UNUSUAL]
    for _ in range(COMPARED):
        compare(engine, [hello | good | each for each in REFUSED] + unusual)
    compare(engine, [hello | good])
