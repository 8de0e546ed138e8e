"""OpenAI's answers, whole and as events."""

import json
from typing import Any

from lmi_backend.clients.openai.writing import ChatWriter, CompletionWriter, usage_of
from lmi_backend.generation import Delta, Token

TOKEN = Token(7, "é", -0.5, top=(Token(8, "e", -1.0),))


def read(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    body: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return body


def test_a_chat_names_its_role_once_an_answer() -> None:
    writer = ChatWriter("m", wants_logprobs=False)
    deltas = [Delta("a", 1), Delta("x", 1, index=1), Delta("b", 1, "stop", "###")]
    events = [read(writer.event(delta)) for delta in deltas]
    assert [event["choices"][0]["delta"] for event in events] == [
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "x"},
        {"content": "b"},
    ]
    assert len({event["id"] for event in events}) == 1
    assert events[0]["id"].startswith("chatcmpl-")
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    (last,) = events[-1]["choices"]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", "###")


def test_a_whole_chat_has_its_messages_and_its_usage() -> None:
    writer = ChatWriter("m", wants_logprobs=False)
    answers = [Delta("a", 1, "stop"), Delta("b", 2, "length", index=1)]
    body = json.loads(writer.whole(answers, usage_of(5, 3)))
    assert (body["object"], body["model"]) == ("chat.completion", "m")
    assert [choice["message"]["content"] for choice in body["choices"]] == ["a", "b"]
    assert [choice["finish_reason"] for choice in body["choices"]] == ["stop", "length"]
    assert {choice["logprobs"] for choice in body["choices"]} == {None}
    assert body["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def test_usage_may_be_an_event_without_choices() -> None:
    event = read(CompletionWriter("m", wants_logprobs=False).usage_event(usage_of(1, 2)))
    assert (event["choices"], event["usage"]["total_tokens"]) == ([], 3)


def test_a_completion_begins_with_the_prompt_where_it_is_wanted() -> None:
    writer = CompletionWriter("m", echo=["p", "q"], wants_logprobs=False)
    deltas = [Delta("a", 1), Delta("x", 1, index=1), Delta("b", 1, "stop")]
    texts = [read(writer.event(delta))["choices"][0]["text"] for delta in deltas]
    assert texts == ["pa", "qx", "b"]


def test_an_echo_has_the_tokens_of_its_prompt_and_where_each_begins() -> None:
    prompt = (Token(1, "a"), Token(2, " b", -2.0))
    first = Delta("é", 1, tokens=(TOKEN,), prompt_tokens=prompt)
    writer = CompletionWriter("m", echo=["a b"], wants_logprobs=True)
    of_prompt, after = (
        read(writer.event(delta))["choices"][0]["logprobs"]
        for delta in (first, Delta("é", 1, "stop", tokens=(TOKEN,)))
    )
    assert of_prompt == {
        "tokens": ["a", " b", "é"],
        "token_logprobs": [None, -2.0, -0.5],
        "top_logprobs": [None, {}, {"e": -1.0}],
        "text_offset": [0, 1, 3],
    }
    assert after["text_offset"] == [4]


def test_each_has_its_own_form_of_tokens() -> None:
    delta = Delta("é", 1, "stop", tokens=(TOKEN,))
    completion, chat = (
        read(kind("m", wants_logprobs=True).event(delta))["choices"][0]["logprobs"]
        for kind in (CompletionWriter, ChatWriter)
    )
    assert completion["tokens"] == ["é"]
    assert completion["token_logprobs"] == [-0.5]
    assert completion["top_logprobs"] == [{"e": -1.0}]
    (token,) = chat["content"]
    assert (token["token"], token["logprob"], token["bytes"]) == ("é", -0.5, [195, 169])
    assert [each["token"] for each in token["top_logprobs"]] == ["e"]
