"""What constrains an answer, or selects who gives it, is served or refused; it is never dropped."""

import json
import re
from typing import Any

import pytest

from tests.clients.conftest import KEY
from tests.support.servers.serving import Served

KEYED = {"authorization": f"Bearer {KEY}"}
TARGET = "x-amzn-sagemaker-target-model"
ADAPTER = "x-amzn-sagemaker-adapter-identifier"
TEXT = {"inputs": "The capital of France is", "parameters": {"max_new_tokens": 20}}
ASKED = [{"role": "user", "content": "What is the capital of France?"}]
CHAT = {"model": "tiny", "messages": ASKED, "temperature": 0, "max_tokens": 20}
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
PATTERN = "[A-Z][a-z]{3}!"
AT_TINY = {TARGET: "tiny"}

ROADS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "TGI's adapter_id": (
        "/generate",
        TEXT | {"parameters": {"max_new_tokens": 20, "adapter_id": "NAME"}},
        AT_TINY,
    ),
    "TGI's model": ("/generate", TEXT | {"model": "NAME"}, {}),
    "TGI, a header": ("/generate", TEXT, {TARGET: "NAME"}),
    "LMI's model": ("/invocations", TEXT | {"model": "NAME"}, {}),
    "LMI, a header": ("/invocations", TEXT, AT_TINY | {ADAPTER: "NAME"}),
    "LMI, a target": ("/invocations", TEXT, {TARGET: "NAME"}),
    "LMI, an endpoint": ("/endpoints/NAME/invocations", TEXT, {}),
    "LMI, a path": ("/predictions/NAME", TEXT, {}),
    "a chat to LMI, a header": ("/invocations", CHAT, AT_TINY | {ADAPTER: "NAME"}),
    "a chat to LMI, a target": ("/invocations", CHAT, {TARGET: "NAME"}),
    "a chat, a header": ("/v1/chat/completions", CHAT, {ADAPTER: "NAME"}),
    "a chat to TGI's name": ("/v1/chat/completions", CHAT | {"model": "tgi"}, {TARGET: "NAME"}),
    "a chat, LMI's field": ("/v1/chat/completions", CHAT | {"adapters": "NAME"}, {}),
    "a chat, TGI's field": ("/v1/chat/completions", CHAT | {"adapter_id": "NAME"}, {}),
}


def _ask(served: Served, road: str, name: str) -> tuple[int, str]:
    path, body, headers = json.loads(json.dumps(ROADS[road]).replace("NAME", name))
    status, _, data = served.ask(path, body, KEYED | headers)
    return status, data.decode()


@pytest.mark.parametrize("road", ROADS)
def test_an_adapter_is_asked_whoever_names_it(served: Served, road: str) -> None:
    status, text = _ask(served, road, "wrong")
    assert (status, "Lyon" in text) == (200, True), text
    status, text = _ask(served, road, "nobody")
    assert status >= 400, text
    assert "nobody" in text


def _answer(served: Served, path: str, body: dict[str, Any]) -> str:
    status, _, data = served.ask(path, body, KEYED | AT_TINY)
    assert status == 200, data
    answer = json.loads(data)
    answer = answer[0] if isinstance(answer, list) else answer
    whole: str = answer.get("generated_text") or answer["choices"][0]["message"]["content"]
    return whole


@pytest.mark.parametrize(
    ("path", "kind", "value"),
    [
        ("/generate", "regex", PATTERN),
        ("/", "json", SCHEMA),
        ("/invocations", "json_schema", {"name": "x", "schema": SCHEMA}),
    ],
)
def test_the_grammar_of_text_generation_inference_holds(
    served: Served, path: str, kind: str, value: Any
) -> None:
    grammar = {"grammar": {"type": kind, "value": value}}
    body = TEXT | {"parameters": {"max_new_tokens": 40} | grammar}
    _check(_answer(served, path, body), kind)


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        ("json", {"response_format": {"type": "json_object", "value": SCHEMA}}),
        ("json", {"response_format": {"type": "json", "value": SCHEMA}}),
        ("regex", {"response_format": {"type": "regex", "value": PATTERN}}),
        ("json", {"guided_json": SCHEMA}),
        ("regex", {"guided_regex": PATTERN}),
    ],
    ids=json.dumps,
)
def test_the_constraints_of_others_hold_in_a_chat(
    served: Served, kind: str, member: dict[str, Any]
) -> None:
    _check(_answer(served, "/v1/chat/completions", CHAT | {"max_tokens": 40} | member), kind)


def _check(text: str, kind: str) -> None:
    if kind == "regex":
        assert re.fullmatch(PATTERN, text)
    else:
        assert isinstance(json.loads(text)["a"], bool)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "asks"),
    [
        ("/v1/chat/completions", {"messages": ASKED}),
        ("/v1/completions", {"prompt": "a"}),
        ("/invocations", {"messages": ASKED}),
    ],
)
@pytest.mark.parametrize("name", ["tiny", "rome", "wrong"])
def test_an_answer_names_its_model_as_the_client_does(
    served: Served, name: str, path: str, asks: dict[str, Any], *, stream: bool
) -> None:
    body = asks | {"model": name, "max_tokens": 3, "stream": stream}
    status, _, data = served.ask(path, body, KEYED | AT_TINY)
    assert status == 200
    assert set(re.findall(r'"model": ?"(.*?)"', data.decode())) == {name}
