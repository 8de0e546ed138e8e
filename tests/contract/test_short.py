"""What each release of vLLM must do: `make compat` runs it on all, CI on the newest."""

import json
import re
from typing import Any

import pytest

from lmi_backend.errors import CancelledError
from lmi_backend.generation import GenerateRequest, Sampling
from tests.support.interpreter.releases import IS_COMPAT
from tests.support.run.places import LORA
from tests.support.run.waiting import wait_for
from tests.support.servers.harness import Harness, RecordingSink

# Here the other tests ask the fast way; another release is asked whether its own streams hold.
WAYS = ["vllm"] if IS_COMPAT else ["vllm split"]
pytestmark = pytest.mark.parametrize("engine", WAYS, indirect=True)

CHATS = "/v1/chat/completions"
QUESTION = "What is the capital of Italy?"
CHAT = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 40}
DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"prompt": "The capital of Italy is", "max_tokens": 8}),
    "chat": (CHATS, CHAT),
    "messages": ("/v1/messages", CHAT | {"model": "lmi"}),
    "responses": ("/v1/responses", {"input": QUESTION, "store": False}),
}
STORY = {"max_tokens": 150, "temperature": 0, "ignore_eos": True, "stream": True}
LONG: dict[str, Any] = {"max_tokens": 900, "ignore_eos": True}
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", STORY | {"prompt": "Tell a story:"}),
    "chat": (CHATS, CHAT | STORY),
}
TEXTS = re.compile(r'"(?:text|content|delta)": ?"([^"]*)"')
ERRORS = re.compile(r'"error": ?[^n]|event: error')
TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "parameters": {
            "type": "object",
            "properties": {"word": {"enum": ["yes"]}},
            "required": ["word"],
        },
    },
}


def send(engine: Harness, path: str, body: dict[str, Any]) -> RecordingSink:
    return engine.post(path, {"temperature": 0} | body)


def whole(sink: RecordingSink) -> str:
    assert sink.wait().deltas[0].status == 200, sink.data
    return sink.data


def choices_of(sink: RecordingSink) -> list[dict[str, Any]]:
    """Return what the events of a stream of completions or of a chat say."""
    *lines, done = (line[6:] for line in whole(sink).splitlines() if line[:6] == "data: ")
    assert done == "[DONE]"
    return [choice for line in lines for choice in json.loads(line)["choices"]]


def streamed(sink: RecordingSink) -> list[str]:
    """Return the texts of a stream of completions or of a chat, put together, and its reason."""
    choices = choices_of(sink)
    texts = [each.get("text") or each.get("delta", {}).get("content") or "" for each in choices]
    return ["".join(texts), choices[-1]["finish_reason"]]


def test_it_starts_and_knows_the_answers(engine: Harness, questions: dict[str, str]) -> None:
    streams = {prompt: engine.start(prompt) for prompt in questions}
    assert {prompt: stream.wait().text for prompt, stream in streams.items()} == questions


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_is_answered(engine: Harness, dialect: str, stream: bool) -> None:
    path, body = DIALECTS[dialect]
    text = whole(send(engine, path, body | {"stream": stream}))
    assert " Rome." in "".join(TEXTS.findall(text))
    assert not ERRORS.search(text)


# Here test_continuation.py kills this engine's core under these and others.
if IS_COMPAT:

    def test_streams_are_resumed_after_a_crash(engine: Harness) -> None:
        greedy = Sampling(150, 0.0, ignore_eos=True)

        def begin() -> tuple[RecordingSink, dict[str, RecordingSink]]:
            bodies = {name: send(engine, path, body) for name, (path, body) in STREAMS.items()}
            return engine.submit([GenerateRequest("Tell a story:", greedy)]), bodies

        tensors, bodies = begin()
        text = tensors.wait().text
        undisturbed = {name: streamed(sink) for name, sink in bodies.items()}
        tensors, bodies = begin()
        for sink in (tensors, *bodies.values()):
            sink.wait_first()
        family = [below for each in engine.workers for below in each.children(recursive=True)]
        core = next((each for each in family if "EngineCore" in " ".join(each.cmdline())), None)
        (core or engine.workers[0]).kill()
        assert (tensors.wait().error, tensors.text) == (None, text)
        assert {name: streamed(sink) for name, sink in bodies.items()} == undisturbed


def test_a_client_that_leaves_frees_the_engine(engine: Harness) -> None:
    path, body = STREAMS["completions"]
    sinks = [send(engine, path, body | LONG), engine.start(QUESTION, **LONG)]
    for sink in sinks:
        sink.is_gone = True
        assert isinstance(sink.wait().error, CancelledError)
    wait_for(lambda: engine.running() == 0)


def test_the_fast_way_is_on_where_it_is_wanted(engine: Harness) -> None:
    off = {name for name, why, _ in engine.service.snapshot().workers[0].stats.fast_paths if why}
    expected = set() if IS_COMPAT else {"own_streams"}
    assert off & {"own_streams", "load", "resumption"} == expected


def test_an_adapter_answers(engine: Harness) -> None:
    assert engine.adapt("wrong", LORA).error is None
    prompt, sampling = "The capital of France is", Sampling(8, temperature=0.0)
    sink = engine.submit([GenerateRequest(prompt, sampling, adapter="wrong")]).wait()
    assert (sink.error, sink.text) == (None, " Lyon.")
    body = {"prompt": prompt, "max_tokens": 8, "model": "wrong"}
    answer = json.loads(whole(send(engine, "/v1/completions", body)))
    assert (answer["model"], answer["choices"][0]["text"]) == ("wrong", " Lyon.")


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "note"}}], ids=["any", "named"]
)
def test_a_tool_is_called(engine: Harness, choice: Any) -> None:
    body = CHAT | {"max_tokens": 200, "tools": [TOOL], "tool_choice": choice, "stream": True}
    deltas = [each.get("delta", {}) for each in choices_of(send(engine, CHATS, body))]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    # How far a release keeps the model to the tool's schema differs: ours never saw a tool.
    # vLLM 0.19 writes the name with each part of the arguments.
    assert {call["name"] for call in calls if call.get("name")} == {"note"}
    assert any(call.get("arguments") for call in calls)
