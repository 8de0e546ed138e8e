"""What goes on when a worker dies, engine by engine: beside answers that nothing disturbed."""

import json
import re
from collections import ChainMap
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import Continuation, Delta, GenerateRequest, Sampling
from lmi_backend.serving.lora import LoraManager
from lmi_backend.tokenization import pack
from tests.support.answers.running_response import assert_one_response
from tests.support.run.places import LORA, TINY
from tests.support.servers.harness import Harness, RecordingSink

LONG = {"max_tokens": 150, "temperature": 0, "ignore_eos": True, "stream": True}
CHAT = {"messages": [{"role": "user", "content": "Tell a story:"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "parameters": {
            "type": "object",
            "properties": {
                "lines": {"type": "array", "items": {"type": "integer"}, "minItems": 60}
            },
            "required": ["lines"],
        },
    },
}
NAMED = {"type": "function", "function": {"name": "note"}}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "lines", "schema": TOOL["function"]["parameters"]},  # type: ignore[index]
}
USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
TEXT = "/v1/completions"
CHATS = "/v1/chat/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
STORY = {"prompt": "Tell a story:"}
RESPONSE = {"input": "Tell a story:", "max_output_tokens": 150, "max_tokens": None}
TOOL_OF_RESPONSES = {"type": "function"} | TOOL["function"]  # type: ignore[operator]
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "text": (TEXT, STORY),
    "usage": (TEXT, STORY | USAGE),
    "log probabilities": (TEXT, STORY | {"logprobs": 2}),
    "stop": (TEXT, STORY | {"stop": ["no such word", "~~"], "min_tokens": 100}),
    "penalties": (TEXT, STORY | {"presence_penalty": 0.5, "frequency_penalty": 0.3}),
    "repetition": (TEXT, STORY | {"repetition_penalty": 1.3}),
    "seed": (TEXT, STORY | {"temperature": 1.0, "seed": 7}),
    "adapter": (TEXT, STORY | {"model": "wrong"}),
    "chat": (CHATS, CHAT | USAGE),
    "chat's log probabilities": (CHATS, CHAT | {"logprobs": True, "top_logprobs": 2}),
    "tool": (CHATS, CHAT | {"tools": [TOOL], "tool_choice": NAMED}),
    "any tool": (CHATS, CHAT | {"tools": [TOOL], "tool_choice": "required"}),
    "tools": (CHATS, CHAT | {"tools": [TOOL]}),
    "structure": (CHATS, CHAT | {"response_format": SCHEMA}),
    # vLLM does not read it there, so it is refused.
    "messages": (MESSAGES, {"model": "lmi", "ignore_eos": None} | CHAT),
    "response": (RESPONSES, RESPONSE),
    "response's tool": (
        RESPONSES,
        RESPONSE | {"tools": [TOOL_OF_RESPONSES], "tool_choice": "required"},
    ),
}
# What vLLM writes of a prompt and of each token, in all combinations.
PARTS: dict[str, dict[str, Any]] = {
    "echo": {"echo": True},
    "log probabilities": {"logprobs": 2},
    "ids": {"return_token_ids": True},
    "ids as tokens": {"return_tokens_as_token_ids": True},
    "stop": {"stop": ["no such word"]},
}
for count in range(2, 4):
    for some in combinations(PARTS, count):
        BODIES[" and ".join(some)] = (TEXT, {**STORY, **ChainMap(*map(PARTS.get, some))})
REQUESTS: dict[str, GenerateRequest] = {
    "text": GenerateRequest("Tell a story:", Sampling(150, 0.0, ignore_eos=True)),
    "log probabilities": GenerateRequest(
        "Tell a story:", Sampling(150, 0.0, ignore_eos=True), logprobs=2
    ),
    "log probabilities of the prompt": GenerateRequest(
        "Tell a story:", Sampling(150, 0.0, ignore_eos=True), logprobs=2, prompt_logprobs=2
    ),
    "stop": GenerateRequest(
        "Tell a story:", Sampling(150, 0.0, ignore_eos=True, stop=("no such word",))
    ),
    "structure": GenerateRequest(
        "Tell a story:", Sampling(150, 0.0, extra={"structured_outputs": {"regex": "[a-z ]{200,}"}})
    ),
}
ADAPTER = str(LORA)
SAMPLED = GenerateRequest("Tell a story:", Sampling(150, 1.0, ignore_eos=True))
LETTERS = "[a-f]{120}"
WORD = {
    "type": "object",
    "properties": {"word": {"type": "string", "pattern": f"^{LETTERS}$"}},
    "required": ["word"],
}
WHOLE = {"temperature": 1.0, "ignore_eos": False, "max_tokens": 300}
DRAWN_BODIES: dict[str, dict[str, Any]] = {
    "structure": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "word", "schema": WORD}}
    },
    "tool": {
        "tools": [
            {"type": "function", "function": {"name": "say", "strict": True} | {"parameters": WORD}}
        ],
        "tool_choice": "required",
    },
}
DRAWN: dict[str, Sampling] = {
    "structure": Sampling(150, 1.0, extra={"structured_outputs": {"regex": LETTERS}}),
    "penalties": Sampling(150, 1.0, ignore_eos=True, presence_penalty=0.5, frequency_penalty=0.3),
    "words": Sampling(150, 1.0, ignore_eos=True, bad_words=("the", "a")),
}
"""Neither greedy nor seeded, and of such a kind that the engine must know what it generated."""


def begin(vllm: Harness) -> dict[str, RecordingSink]:
    bodies = {name: vllm.post(path, LONG | body) for name, (path, body) in BODIES.items()}
    return {f"body: {name}": sink for name, sink in bodies.items()} | {
        f"tensors: {name}": vllm.submit([request]) for name, request in REQUESTS.items()
    }


def begin_drawn(vllm: Harness) -> dict[str, RecordingSink]:
    bodies = {
        name: vllm.post(CHATS, LONG | CHAT | WHOLE | body) for name, body in DRAWN_BODIES.items()
    }
    return bodies | {
        f"tensors: {name}": vllm.submit([GenerateRequest("Tell a story:", sampling)])
        for name, sampling in DRAWN.items()
    }


class Near(float):
    """Equals what differs by rounding: a prompt's tokens are computed otherwise than new ones."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 0.05

    __hash__ = float.__hash__


def logprobs_of(choice: dict[str, Any]) -> list[Any]:
    """Return what an event tells of each token: its text, place, value and the likeliest ones."""
    found = choice.get("logprobs") or {}
    if "content" in found:
        return [
            (
                each["token"],
                each["bytes"],
                Near(each["logprob"]),
                [t["token"] for t in each["top_logprobs"]],
            )
            for each in found["content"]
        ]
    names = ("tokens", "text_offset", "token_logprobs", "top_logprobs")
    rows = zip(*(found.get(name) or () for name in names), strict=True)
    # Nothing stands before the first token of a prompt.
    return [
        (token, offset, value if value is None else Near(value), [*(top or ())])
        for token, offset, value, top in rows
    ]


def answer_of(sink: RecordingSink) -> list[Any]:
    """Return what an answer told, without names, times and how it was cut into pieces."""
    assert sink.wait().error is None
    if isinstance(sink.deltas[0], Delta):
        last = sink.deltas[-1]
        ids = [token.id for delta in sink.deltas for token in delta.tokens]
        count = sum(delta.num_tokens for delta in sink.deltas)
        whole = round(last.cumulative_logprob or 0.0, 3)
        return [sink.text, last.finish_reason, count, last.num_prompt_tokens, ids, whole]
    names, seen, logprobs, ids = set(), [], [], []
    assert_one_response(sink.events)
    for event in sink.events:
        names.add((event.get("id"), event.get("created")))
        for choice in event.get("choices", ()):
            seen.append((choice.get("text"), choice.get("delta"), choice.get("finish_reason")))
            logprobs += logprobs_of(choice)
            ids += [choice.get("prompt_token_ids"), *(choice.get("token_ids") or ())]
        seen += [event.get("usage"), event.get("delta")]
    assert "error" not in sink.data
    assert len(names) == 1
    ids = [each for each in ids if each is not None]
    return [_joined(seen), sum(chunk.num_tokens for chunk in sink.deltas), logprobs, ids]


def _joined(seen: list[Any]) -> list[Any]:
    """Return the strings of all events put together, in their places, and the last of the rest."""
    texts: dict[str, str] = {}
    rest: dict[str, Any] = {}

    def look(value: Any, place: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                look(item, f"{place}.{key}")
        elif isinstance(value, list | tuple):
            for position, item in enumerate(value):
                # A tool's call says which of the answer's it is: each comes first in its own event.
                index = item.get("index", position) if isinstance(item, dict) else position
                look(item, f"{place}.{index}")
        elif isinstance(value, str) and not place.endswith(("id", "type")):
            texts[place] = texts.get(place, "") + value
        elif isinstance(value, int):
            rest[place] = value

    for each in seen:
        look(each, "")
    # vLLM fills in what a call that was cut lacks, if its last output has part of a call: that goes
    # by how it cut the tokens (`_append_unstreamed_tool_args`).
    texts = {place: text.removesuffix("{}") for place, text in texts.items()}
    return [texts, rest]


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_answers_of_vllm_are_as_if_nothing_had_happened(engine: Harness) -> None:
    # The worker that takes over has it, too.
    manage(engine, "REGISTER_ADAPTER", src=ADAPTER)
    undisturbed = {name: answer_of(sink) for name, sink in begin(engine).items()}
    before = engine.service.snapshot().moved
    sinks = begin(engine)
    sampled = [engine.submit([SAMPLED]) for _ in range(4)]
    drawn = begin_drawn(engine)
    several = engine.submit([GenerateRequest("Tell a story:", Sampling(150, ignore_eos=True), n=2)])
    for sink in (*sinks.values(), *sampled, *drawn.values(), several):
        sink.wait_first()
    # A worker that resumes from a chat's role alone would have to know its first token.
    first = sinks["body: chat's log probabilities"].deltas[0].data
    assert b'"role"' in first
    assert b'"token"' in first
    family = [below for each in engine.workers for below in each.children(recursive=True)]
    (core,) = [each for each in family if "EngineCore" in " ".join(each.cmdline())]
    core.kill()
    assert not any(sink.endings for sink in drawn.values())
    assert isinstance(several.wait().error, EngineDeadError)
    assert {name: answer_of(sink) for name, sink in sinks.items()} == undisturbed
    for sink in sampled:
        _, reason, count, *_ = answer_of(sink)
        assert (reason, count) == ("length", 150)
    (structure, *_), (tool, *_) = (answer_of(drawn.pop(name)) for name in DRAWN_BODIES)
    for text in (structure[0][".1.content"], tool[0][".1.tool_calls.0.function.arguments"]):
        assert re.fullmatch(LETTERS, json.loads(text)["word"])
    assert re.fullmatch(LETTERS, answer_of(drawn.pop("tensors: structure"))[0])
    assert {tuple(answer_of(sink)[1:3]) for sink in drawn.values()} == {("length", 150)}
    assert engine.service.snapshot().moved - before >= len(sinks) // 2
    manage(engine, "UNREGISTER_ADAPTER")


def manage(engine: Harness, kind: str, **more: str) -> None:
    pool: Any = engine.pool
    manager = LoraManager(pool.adapters, engine.service, (str(TINY),), is_enabled=True)
    manager.on_set = pool.note_adapter
    manager.handle({"requestType": kind, "name": "wrong", **more}, RecordingSink())


ALONE: dict[str, Sampling] = {
    "seed": Sampling(60, 1.0, ignore_eos=True, seed=7),
    "repetition": Sampling(60, 0.0, ignore_eos=True, repetition_penalty=1.3),
    "penalties": Sampling(60, 0.0, ignore_eos=True, presence_penalty=0.5, frequency_penalty=0.3),
    "min_tokens": Sampling(60, 0.0, min_tokens=50, stop=("no such word",)),
    "words": Sampling(60, 0.0, ignore_eos=True, bad_words=("the", "a")),
}
"""What Transformers' continuous batch cannot do."""


def begin_some(engine: Harness, tokens: int) -> dict[str, RecordingSink]:
    """Start what engines without a server of their own take, too."""
    greedy = Sampling(tokens, 0.0, ignore_eos=True)
    usage = {"stream_options": {"include_usage": True}}
    asked = {
        "seed": replace(greedy, temperature=1.0, seed=7),
        "text": greedy,
        "stop": replace(greedy, stop=("no such word",)),
    }
    bodies = {"completion": (TEXT, STORY | usage), "chat": (CHATS, CHAT | usage)}
    return {
        name: engine.submit([GenerateRequest("Tell a story:", sampling)])
        for name, sampling in asked.items()
    } | {
        name: engine.post(path, LONG | {"max_tokens": tokens} | body)
        for name, (path, body) in bodies.items()
    }


@pytest.mark.parametrize(
    ("engine", "tokens", "ends"),
    [("transformers", 150, ()), ("trtllm", 600, ("seed", "stop"))],
    indirect=["engine"],
)
def test_answers_of_others_are_as_if_nothing_had_happened(
    engine: Harness, tokens: int, ends: tuple[str, ...]
) -> None:
    undisturbed = {name: answer_of(sink) for name, sink in begin_some(engine, tokens).items()}
    before = engine.service.snapshot().moved
    sinks = begin_some(engine, tokens)
    sampled = engine.submit([SAMPLED])
    for sink in (*sinks.values(), sampled):
        sink.wait_first()
    engine.workers[0].kill()
    assert not any(sink.endings for sink in sinks.values())
    for name in ends:
        assert isinstance(sinks.pop(name).wait().error, EngineDeadError)
    assert {name: answer_of(sink) for name, sink in sinks.items()}.items() <= undisturbed.items()
    assert answer_of(sampled)[1:3] == ["length", 150]
    assert engine.service.snapshot().moved - before == len(sinks) + 1


@pytest.mark.parametrize("engine", ["transformers"], indirect=True)
@pytest.mark.parametrize("kind", ALONE)
def test_what_is_generated_alone_goes_on_too(engine: Harness, kind: str) -> None:
    request = GenerateRequest("Tell a story:", ALONE[kind], logprobs=1)
    whole = [token for delta in engine.submit([request]).wait().deltas for token in delta.tokens]
    known = b"".join(pack([token.id]) for token in whole[:20])
    sink = engine.submit([replace(request, continuation=Continuation(known))]).wait()
    assert sink.error is None
    assert [token for delta in sink.deltas for token in delta.tokens] == whole[20:]
    assert sink.deltas[-1].finish_reason == "length"
