"""Chats that are answered as earlier ones were, beside the same through all of vLLM's server."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside.known_chats import ENOUGH
from lmi_backend.generation import HttpRequest
from tests.contract.test_events import PROMPTS, content_of, events

# The worker whose server parses no tools: there, chats are plain.
pytestmark = pytest.mark.parametrize("engine", ["vllm mpi"], indirect=True)

CHATS = "/v1/chat/completions"
THROUGH_SERVER = {"origin": "https://pages.example"}
KINDS = 20
COMPARED = 3
ROUNDS = 6
"""In which every kind should be known. An engine that is fast beside its server hands over all
tokens before the first event is written, and nothing is learnt of the middle of a stream."""
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
    {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": False}},
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
        asked: dict[str, Any] = {"model": "lmi", "stream": True, "temperature": 0}
        asked |= {"max_tokens": dice.randint(3, 9), "ignore_eos": dice.random() < 0.5}
        for more in [SOME[number % len(SOME)], *dice.sample(SOME, dice.choice((0, 1, 2)))]:
            asked |= more
        names = list(asked)
        dice.shuffle(names)
        yield {name: asked[name] for name in names}


def start(engine: Any, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
    return engine.submit(HttpRequest(CHATS, json.dumps(body).encode(), headers or {}))


def content(chunks: list[Any]) -> Any:
    """Return what an answer tells, wherever its events are cut."""
    found = events(b"".join(each.data for each in chunks))
    middle, others, text = content_of(found)
    assert len(set(middle)) <= 1
    counts = (sum(each.num_tokens for each in chunks), chunks[-1].num_prompt_tokens)
    return chunks[0].status, chunks[0].headers.get("content-type"), others, text, counts


def is_known(chunks: list[Any]) -> bool:
    """Tell whether vLLM's server has probably seen nothing of an answer.

    Its last chunk has the head, unless it shares a response with events of the middle.
    """
    return not chunks[-1].headers


def compare(engine: Any, bodies: list[dict[str, Any]]) -> list[bool]:
    """Return which of these answers were known; each must be the server's."""
    ours = [start(engine, body) for body in bodies]
    answers = [sink.wait().deltas for sink in ours]
    theirs = [start(engine, body, THROUGH_SERVER) for body in bodies]
    for body, answer, sink in zip(bodies, answers, theirs, strict=True):
        assert content(answer) == content(sink.wait().deltas), body
    return [is_known(answer) for answer in answers]


def teach(engine: Any, asked: list[dict[str, Any]], dice: random.Random) -> None:
    """Have chats of each kind answered, until most are known."""
    for _ in range(ROUNDS):
        sinks = [start(engine, {"messages": talks(dice), **each}) for each in asked]
        known = [is_known(sink.wait().deltas) for sink in sinks]
        if sum(known) > 0.9 * len(known):
            return


def test_known_chats_have_the_bytes_of_the_server(engine: Any) -> None:
    dice = random.Random(20261127)
    asked = list(kinds(dice))
    teach(engine, asked, dice)
    known = []
    for _ in range(COMPARED):
        known += compare(engine, [each | {"messages": talks(dice)} for each in asked])
    assert any(known)


def test_ids_and_times_are_its_own(engine: Any) -> None:
    asked = {"model": "lmi", "stream": True, "max_tokens": 20, "ignore_eos": True, "seed": 11}
    ids = []
    teach(engine, [asked], random.Random(1))
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
    asked = {"model": "lmi", "stream": True, "temperature": 0, "stop": ["a"], "top_k": 3}
    usage = {"stream_options": {"include_usage": True}}
    dice = random.Random(3)
    teach(engine, [asked | usage], dice)
    compare(engine, [asked | usage | {"messages": talks(dice)} for _ in range(4)])


def test_what_the_server_refuses_is_refused_in_its_words(engine: Any) -> None:
    """However often: nothing is learnt of it."""
    good = {"model": "lmi", "stream": True, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    hello = {"messages": [{"role": "user", "content": "a"}]}
    teach(engine, [good], random.Random(2))
    unusual = [good | {"messages": talk} for talk in UNUSUAL]
    for _ in range(ENOUGH + 2):
        compare(engine, [hello | good | each for each in REFUSED] + unusual)
    compare(engine, [hello | good])
