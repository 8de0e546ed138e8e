"""OpenAI's bodies and answers, of an engine without a server of its own."""

import json
from typing import Any

import pytest

from lmi_backend.clients.openai_bodies import (
    Body,
    ChatWriter,
    CompletionWriter,
    adapter_of,
    read_chat,
    read_completion,
)
from lmi_backend.clients.parameters import NEUTRAL
from lmi_backend.errors import HttpError, RequestError
from lmi_backend.generation import Delta, Token

USER = {"role": "user", "content": "Hi"}


def chat(**fields: Any) -> Body:
    return read_chat({"messages": [USER]} | fields)


def completion(**fields: Any) -> Body:
    return read_completion({"prompt": "p"} | fields)


def test_the_defaults_are_openais() -> None:
    assert completion().sampling.max_tokens == 16
    assert completion().has_limit
    assert not chat().has_limit
    for body in (chat(), completion()):
        assert (body.sampling.temperature, body.n, body.stream, body.logprobs) == (
            1.0,
            1,
            False,
            None,
        )
    # A client's library may write every field.
    assert completion(max_tokens=None, n=None, stream=None, stop=None) == completion()


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ("a",)),
        ([1, 2], ((1, 2),)),
        (["a", "b"], ("a", "b")),
        ([[1], [2, 3]], ((1,), (2, 3))),
        (["a", [1]], ("a", (1,))),
    ],
)
def test_a_prompt_is_a_text_token_ids_or_a_list_of_either(
    prompt: Any, prompts: tuple[Any, ...]
) -> None:
    assert completion(prompt=prompt).prompts == prompts


def test_a_chats_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, "b"]
    body = read_chat({"messages": [USER | {"content": parts, "name": "n"}, {"role": "assistant"}]})
    assert body.messages == [
        {"role": "user", "content": "a\nb", "name": "n"},
        {"role": "assistant", "content": ""},
    ]


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7),
        ({"n_predict": 3}, 3),
        ({"num_predict": 3}, 3),
        ({"max_new_tokens": 3}, 3),
    ],
)
def test_a_limit_has_several_names(fields: dict[str, int], limit: int) -> None:
    body = chat(**fields)
    assert (body.has_limit, body.sampling.max_tokens) == (True, limit)
    assert completion(**fields).sampling.max_tokens == limit


def test_the_template_is_told_how_to_end() -> None:
    assert chat().template_options == {
        "continue_final_message": False,
        "add_generation_prompt": True,
    }
    options = chat(continue_final_message=True, chat_template_kwargs={"x": 1}).template_options
    assert options == {"x": 1, "continue_final_message": True, "add_generation_prompt": False}


@pytest.mark.parametrize("fields", [{"best_of": 3, "n": 3}, {"best_of": 1, "n": 3}, {"n": 3}])
def test_as_many_answers_are_made_as_are_returned(fields: dict[str, Any]) -> None:
    assert completion(**fields).n == 3


def test_a_developers_message_is_the_systems() -> None:
    messages = [{"role": "developer", "content": "Be terse."}, USER]
    assert chat(messages=messages).messages == [messages[0] | {"role": "system"}, USER]


PICTURE = {"type": "image_url", "image_url": {"url": "x"}}


@pytest.mark.parametrize(
    ("read", "field", "values"),
    [
        (completion, "prompt", [None, 1, [], [True], [1, "a"], {}, [[]], [["a", 1]]]),
        (chat, "messages", [None, [], "Hi", ["Hi"], [{"content": "Hi"}]]),
        (chat, "messages", [[USER | {"content": 7}], [USER | {"content": [PICTURE]}]]),
        (completion, "best_of", [3]),
        (completion, "stream_options", [{"include_usage": True}]),
        (completion, "max_tokens", [0]),
        (chat, "top_logprobs", [2]),
        *((chat, name, [[{"a": 1}]]) for name in ("tools", "functions", "suffix")),
        *((completion, name, [7]) for name in ("typical_p", "early_stopping", "num_beams")),
    ],
)
def test_what_is_not_served_is_refused_by_name(read: Any, field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(RequestError) as refusal:
            read(**{field: value})
        assert field in (refusal.value.field, str(refusal.value).split()[0])


@pytest.mark.parametrize(
    "fields",
    [
        *({name: []} for name in ("tools", "functions", "suffix")),
        *({name: NEUTRAL[name][0]} for name in ("typical_p", "early_stopping", "num_beams")),
        {"n_predict": -1},
        {"num_predict": -1},
        {"top_logprobs": 0},
        {"stream_options": None},
        {"stream_options": {}},
    ],
    ids=str,
)
def test_what_asks_for_nothing_changes_nothing(fields: dict[str, Any]) -> None:
    assert chat(**fields) == chat()


def test_usage_and_log_probabilities_are_for_who_wants_them() -> None:
    assert completion(stream=True, stream_options={"include_usage": True, "x": 1}).include_usage
    assert (chat(logprobs=True).logprobs, completion(logprobs=3).logprobs) == (0, 3)
    assert chat(top_logprobs=2, logprobs=True).logprobs == 2


def test_a_model_is_an_adapters_name() -> None:
    adapters = {"french": "/adapters/french"}
    names = ("lmi", "triton")
    assert {adapter_of(chat(model=each), names, adapters) for each in ("", *names)} == {""}
    assert adapter_of(chat(model="french"), names, adapters) == "french"
    with pytest.raises(HttpError, match=r"The model `german` does not exist\.") as error:
        adapter_of(chat(model="german"), names, adapters)
    assert error.value.status == 404


@pytest.mark.parametrize(("echo", "tokens", "only"), [(True, 0, True), (True, 1, False)])
def test_a_prompt_is_shown_alone_where_no_token_is_wanted(
    echo: bool, tokens: int, only: bool
) -> None:
    body = completion(echo=echo, max_tokens=tokens)
    assert (body.shows_prompt_only, body.sampling.max_tokens) == (only, 1)


TOKEN = Token(7, "é", -0.5, top=(Token(8, "e", -1.0),))


def read(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    body: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return body


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
