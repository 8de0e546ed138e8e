"""Whole OpenAI bodies through the tensors `request` and `response`, on the real vLLM."""

import json
from typing import Any

from tests.support.servers.serving import Served

CHAT = [{"role": "user", "content": "What is the capital of Italy?"}]


def ask(served: Served, body: Any, **tensors: Any) -> tuple[int, Any]:
    status, answer = served.generate("tiny", {"request": json.dumps(body)} | tensors)
    return status, json.loads(answer["response"] if status == 200 else answer["error"])


def chunks(served: Served, body: Any) -> list[Any]:
    with served.events("tiny", {"request": json.dumps(body | {"stream": True})}) as events:
        text = "".join(event["response"] for event in events)
    *data, end = text.removesuffix("\n\n").split("\n\n")
    assert end == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in data]


def test_a_chat_uses_the_models_own_template(served: Served) -> None:
    status, answer = ask(served, {"messages": CHAT, "temperature": 0})
    assert status == 200
    (choice,) = answer["choices"]
    assert choice["message"]["content"] == "The capital of Italy is Rome."
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] > 3


def test_a_streamed_chat_says_the_same(served: Served) -> None:
    options = {"include_usage": True}
    events = chunks(served, {"messages": CHAT, "temperature": 0, "stream_options": options})
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in events if c["choices"])
    assert text == "The capital of Italy is Rome."
    assert events[-1]["usage"]["total_tokens"] > 10


def test_models_are_listed(served: Served) -> None:
    status, answer = served.generate("tiny", {"request": "", "path": "/v1/models"})
    assert status == 200
    names = [card["id"] for card in json.loads(answer["response"])["data"]]
    assert names[0] == "lmi"
    assert "wrong" in names


def test_errors_are_bodies_with_their_code(served: Served) -> None:
    for body, code in (
        ({"messages": CHAT, "model": "none"}, 404),
        ({"messages": CHAT, "temperature": -1}, 400),
        ({"messages": CHAT, "tools": "x"}, 400),
        ({"prompt": "one " * 3000}, 400),
    ):
        status, answer = ask(served, body)
        assert status == 400
        assert answer["error"]["code"] == code
    assert ask(served, {}, path="/sleep")[1]["code"] == 424
