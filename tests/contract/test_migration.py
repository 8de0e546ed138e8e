"""Requests of a real worker that is killed, hangs or ends: they go on, unseen by their clients."""

import json
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import Delta, GenerateRequest, HttpRequest, Sampling
from lmi_backend.ipc import messages as msg
from lmi_backend.serving.renewal import Renewal
from tests.support.harness import Harness, RecordingSink
from tests.support.places import TINY

Start = Callable[..., AbstractContextManager[Harness]]
ECHO = {"option.rolling_batch": "echo", "option.openai": "true", "option.token_seconds": 0.01}
TWO = {"minWorkers": 2, "maxWorkers": 2, "option.parallel_loading": "true"}
STREAMS = 16
TOKENS = 100
PROMPT = "one two three "


def chat(tokens: int, **more: Any) -> HttpRequest:
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": tokens}
    return HttpRequest("/v1/chat/completions", json.dumps(body | more).encode())


def events(sink: RecordingSink) -> list[Any]:
    """Return what the events of a stream hold; the last of them says that it is done."""
    data = b"".join(chunk.data for chunk in sink.deltas)
    *lines, done, rest = data.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.parametrize("workers", [{}, TWO], ids=["one worker", "two workers"])
def test_a_killed_worker_costs_a_pause(start: Start, workers: dict[str, Any]) -> None:
    with start(ECHO | workers) as echo:
        plain = [echo.start(PROMPT, max_tokens=TOKENS) for _ in range(STREAMS)]
        whole = [echo.start(PROMPT, max_tokens=TOKENS, stream=False) for _ in range(4)]
        chats = [echo.submit(chat(TOKENS, stream=True)) for _ in range(STREAMS)]
        for sink in (*plain, *chats):
            sink.wait_first()
        echo.workers[0].send_signal(signal.SIGKILL)
        # One that comes now waits.
        late = echo.start(PROMPT, max_tokens=3)
        words = ["one", " two", " three", " "]
        text = "".join(words[index % 4] for index in range(TOKENS))
        for sink in (*plain, *whole):
            assert (sink.wait().error, sink.text) == (None, text)
            assert sum(delta.num_tokens for delta in sink.deltas) == TOKENS
            assert (sink.deltas[-1].finish_reason, sink.deltas[-1].num_prompt_tokens) == (
                "length",
                4,
            )
        for sink in chats:
            assert sink.wait().error is None
            said = events(sink)
            assert "".join(each["choices"][0]["delta"]["content"] for each in said) == text
            assert len({(each["id"], each["created"]) for each in said}) == 1
            assert [each["usage"]["completion_tokens"] for each in said] == [*range(1, TOKENS + 1)]
        assert late.wait().text == "one two three"
        now = echo.service.snapshot()
        assert now.moved >= STREAMS
        assert now.generation_tokens == (len(plain) + len(whole) + len(chats)) * TOKENS + 3


def test_a_request_that_ends_its_worker_each_time_ends_alone(start: Start) -> None:
    with start(ECHO | {"option.die_on": "die"}) as echo:
        others = [echo.start(PROMPT, max_tokens=TOKENS).wait_first() for _ in range(STREAMS)]
        error = echo.ask("die").error
        assert isinstance(error, EngineDeadError)
        assert str(error) == (
            "the echo engine was told to die; it was in each of 2 deaths of a worker, and is not "
            "tried again"
        )
        assert [other.wait().error for other in others] == [None] * STREAMS
        assert [worker.deaths for worker in echo.service.snapshot().workers] == [2]


def test_with_a_timeout_of_0_all_end_at_once(start: Start) -> None:
    with start(ECHO | {"option.migration_timeout": 0}) as echo:
        sinks = [echo.start(PROMPT, max_tokens=TOKENS).wait_first() for _ in range(4)]
        echo.workers[0].kill()
        assert {str(sink.wait().error) for sink in sinks} == {
            "worker model/0 was killed by SIGKILL"
        }
        assert not any(delta.ids for sink in sinks for delta in sink.deltas)


def several(echo: Harness, tokens: int) -> RecordingSink:
    """Start what cannot go on once it has begun: two answers."""
    request = GenerateRequest(PROMPT, Sampling(tokens), n=2)
    return echo.submit([request]).wait_first()


def test_a_worker_is_started_anew_while_its_requests_go_on(start: Start) -> None:
    with start(ECHO) as echo:
        renewal = Renewal(echo.service, echo.service._workers, 60)  # type: ignore[arg-type]
        (before,) = echo.workers
        plain = [echo.start(PROMPT, max_tokens=TOKENS).wait_first() for _ in range(STREAMS)]
        chats = [echo.submit(chat(TOKENS, stream=True)).wait_first() for _ in range(STREAMS)]
        two = several(echo, 30)
        # That one may end first.
        assert renewal.renew(0, 30) == msg.Renewed()
        assert two.wait().error is None
        assert sum(delta.num_tokens for delta in two.deltas) == 2 * 30
        (after,) = echo.workers
        assert after.pid != before.pid
        for sink in (*plain, *chats):
            assert sink.wait().error is None
            assert sum(chunk.num_tokens for chunk in sink.deltas) == TOKENS
        assert [worker.deaths for worker in echo.service.snapshot().workers] == [0]
        late = several(echo, 4000)
        assert renewal.renew(0, 0.1) == msg.Renewed(cut=1)
        assert str(late.wait().error) == "worker 0 is started anew, and waits no longer"
        assert "accepted: 0 to 0" in renewal.renew(1, 1).trouble


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
STORY = {"prompt": "Tell a story:"}
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
    "messages": (MESSAGES, {"model": "lmi"} | CHAT),
}
REQUESTS: dict[str, GenerateRequest] = {
    "text": GenerateRequest("Tell a story:", Sampling(150, 0.0, ignore_eos=True)),
    "log probabilities": GenerateRequest(
        "Tell a story:", Sampling(150, 0.0, ignore_eos=True), logprobs=2
    ),
    "stop": GenerateRequest(
        "Tell a story:", Sampling(150, 0.0, ignore_eos=True, stop=("no such word",))
    ),
    "structure": GenerateRequest(
        "Tell a story:",
        Sampling(150, 0.0, extra={"structured_outputs": {"regex": "[a-z ]{200,}"}}),
    ),
}
ADAPTER = str(TINY / "lora")
SAMPLED = GenerateRequest("Tell a story:", Sampling(150, 1.0, ignore_eos=True))


def begin(vllm: Harness) -> dict[str, RecordingSink]:
    """Start one of each."""
    bodies = {
        name: vllm.submit(HttpRequest(path, json.dumps(LONG | body).encode()))
        for name, (path, body) in BODIES.items()
    }
    return {f"body: {name}": sink for name, sink in bodies.items()} | {
        f"tensors: {name}": vllm.submit([request]) for name, request in REQUESTS.items()
    }


def told(sink: RecordingSink) -> list[Any]:
    """Return what an answer told, without names, times and how it was cut into pieces."""
    assert sink.wait().error is None
    if isinstance(sink.deltas[0], Delta):
        last = sink.deltas[-1]
        ids = [token.id for delta in sink.deltas for token in delta.tokens]
        count = sum(delta.num_tokens for delta in sink.deltas)
        whole = round(last.cumulative_logprob or 0.0, 3)
        return [sink.text, last.finish_reason, count, last.num_prompt_tokens, ids, whole]
    data = b"".join(chunk.data for chunk in sink.deltas).decode()
    lines = [line.removeprefix("data: ") for line in data.splitlines() if line[:5] == "data:"]
    names, seen = set(), []
    for event in (json.loads(line) for line in lines if line != "[DONE]"):
        names.add((event.get("id"), event.get("created")))
        for choice in event.get("choices", ()):
            seen.append((choice.get("text"), choice.get("delta"), choice.get("finish_reason")))
        seen += [event.get("usage"), event.get("delta")]
    assert "error" not in data
    assert len(names) == 1
    return [_joined(seen), sum(chunk.num_tokens for chunk in sink.deltas)]


def _joined(seen: list[Any]) -> list[Any]:
    """Return the strings of all events put together, in their places, and the last of the rest."""
    texts: dict[str, str] = {}
    rest: dict[str, Any] = {}

    def look(value: Any, place: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                look(item, f"{place}.{key}")
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
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
    # What the worker that takes over knows from its start.
    engine.plan.config.adapters["wrong"] = ADAPTER
    loaded = RecordingSink()
    engine.service.adapt("wrong", ADAPTER, loaded, preload=True, pin=False)
    assert loaded.wait().error is None
    undisturbed = {name: told(sink) for name, sink in begin(engine).items()}
    before = engine.service.snapshot().moved
    sinks = begin(engine)
    sampled = [engine.submit([SAMPLED]) for _ in range(4)]
    drawn = Sampling(150, 1.0, extra={"structured_outputs": {"regex": "[a-z ]{200,}"}})
    lost = [
        engine.submit([GenerateRequest("Tell a story:", drawn)]),
        engine.submit([GenerateRequest("Tell a story:", Sampling(150, ignore_eos=True), n=2)]),
    ]
    for sink in (*sinks.values(), *sampled, *lost):
        sink.wait_first()
    family = [below for each in engine.workers for below in each.children(recursive=True)]
    (core,) = [each for each in family if "EngineCore" in " ".join(each.cmdline())]
    core.kill()
    assert [type(sink.wait().error) for sink in lost] == [EngineDeadError] * 2
    assert {name: told(sink) for name, sink in sinks.items()} == undisturbed
    for sink in sampled:
        _, reason, count, *_ = told(sink)
        assert (reason, count) == ("length", 150)
    assert engine.service.snapshot().moved - before >= len(sinks) // 2
    del engine.plan.config.adapters["wrong"]
    engine.service.adapt("wrong", "", gone := RecordingSink(), preload=True, pin=False)
    assert gone.wait().error is None
