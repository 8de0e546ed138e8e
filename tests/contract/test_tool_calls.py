"""Tool calls that a model does not end, in whole answers of vLLM's server and in streams."""

import json
from typing import Any

import pytest

from lmi_backend.generation import HttpRequest
from tests.support.releases import vllm_release

pytestmark = [
    pytest.mark.parametrize("engine", ["vllm"], indirect=True),
    pytest.mark.skipif(vllm_release() < (0, 30), reason="an older vLLM has other parsers"),
]

MESSAGES = [{"role": "user", "content": "What is the capital of Italy?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}}
TOOLS = [{"type": "function", "function": {"name": "travel", "parameters": PARAMETERS}}]
CHAT = {"messages": MESSAGES, "temperature": 0, "tools": TOOLS, "tool_choice": "required"}
MESSAGE = {
    "model": "lmi",
    "messages": MESSAGES,
    "temperature": 0,
    "max_tokens": 100,
    "tools": [{"name": "travel", "input_schema": PARAMETERS}],
    "tool_choice": {"type": "any"},
}


def ask(engine: Any, path: str, body: Any) -> tuple[int, str]:
    chunks = engine.submit(HttpRequest(path, json.dumps(body).encode())).wait().deltas
    return chunks[0].status, b"".join(chunk.data for chunk in chunks).decode()


def chat(engine: Any, body: Any) -> tuple[str, list[Any], str]:
    """Return content, calls and finish reason of a whole chat."""
    (choice,) = json.loads(ask(engine, "/v1/chat/completions", body)[1])["choices"]
    message = choice["message"]
    return message["content"] or "", message.get("tool_calls") or [], choice["finish_reason"]


def streamed(engine: Any, body: Any) -> tuple[str, str]:
    """Return content and finish reason of a chat's stream."""
    _, answer = ask(engine, "/v1/chat/completions", body | {"stream": True})
    lines = [line.removeprefix("data: ") for line in answer.splitlines() if "{" in line]
    choices = [json.loads(line)["choices"][0] for line in lines]
    content = "".join(each["delta"].get("content") or "" for each in choices)
    return content, choices[-1]["finish_reason"]


@pytest.mark.parametrize("end", [{"max_tokens": 1}, {"max_tokens": 12}, {"stop": ["name"]}])
def test_a_cut_call_is_no_text_and_no_call(engine: Any, end: dict[str, Any]) -> None:
    content, calls, reason = chat(engine, CHAT | end)
    assert calls == []
    assert (content, reason) == streamed(engine, CHAT | end)
    assert (content, reason) == ("", "stop" if "stop" in end else "length")


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_cut_text_is_whole(engine: Any, choice: str) -> None:
    body = CHAT | {"tool_choice": choice, "max_tokens": 4}
    content, _, reason = chat(engine, body)
    assert (content, reason) == streamed(engine, body) == ("The capital of It", "length")


def test_a_call_that_is_whole_is_told(engine: Any) -> None:
    content, (call,), reason = chat(engine, CHAT)
    assert (content, call["function"]["name"], reason) == ("", "travel", "tool_calls")


def test_a_cut_call_is_no_text_of_a_message(engine: Any) -> None:
    status, answer = ask(engine, "/v1/messages", MESSAGE | {"max_tokens": 12})
    message = json.loads(answer)
    assert (status, message["stop_reason"]) == (200, "max_tokens")
    assert message["content"] == [{"type": "text", "text": ""}]


def test_arguments_that_are_no_object_are_not_the_clients_fault(engine: Any) -> None:
    """vLLM keeps a model to the schema of a tool only if that is strict; this one says `true`."""
    status, answer = ask(engine, "/v1/messages", MESSAGE)
    error = json.loads(answer)["error"]
    assert (status, error["type"]) == (500, "InternalServerError")
    assert error["message"] == "the model called a tool with arguments that are no JSON object"
