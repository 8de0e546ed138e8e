"""What constrains, selects or limits an answer, at paths whose server does not read it."""

import json
from typing import Any

import pytest

from lmi_backend.engines.bodies import BodyBounds, check_body
from lmi_backend.errors import RequestError

READS = {
    "/v1/chat/completions": {
        *("max_tokens", "max_completion_tokens", "seed", "stop", "n", "top_p"),
        *("continue_final_message", "ignore_eos"),
    },
    "/v1/completions": {"max_tokens", "seed", "stop", "min_tokens", "n", "watermark"},
    "/v1/responses": {"max_output_tokens", "reasoning", "truncation"},
    "/v1/messages": {"max_tokens", "stop_sequences", "thinking"},
}
CHATS, COMPLETIONS, RESPONSES, MESSAGES = READS


def _read(path: str, body: dict[str, Any]) -> dict[str, Any]:
    checked = check_body(json.dumps(body).encode(), BodyBounds(reads=READS), path)
    read: dict[str, Any] = json.loads(checked.data)
    return read


BEGUN = {"role": "assistant", "content": "The capital"}
CONTINUED = {"continue_final_message": True, "add_generation_prompt": False}


def _begun(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "a"}, BEGUN | more]}


@pytest.mark.parametrize(
    ("path", "given", "read"),
    [
        (CHATS, {"n_predict": 5}, {"max_tokens": 5}),
        (CHATS, {"n_predict": -1}, {}),
        (CHATS, {"max_output_tokens": 5, "max_tokens": 5}, {"max_tokens": 5}),
        (CHATS, {"random_seed": 0}, {"seed": 0}),
        (CHATS, {"stop_sequences": ["a"], "p": 0.5}, {"stop": ["a"], "top_p": 0.5}),
        (COMPLETIONS, {"max_completion_tokens": 5}, {"max_tokens": 5}),
        (COMPLETIONS, {"min_new_tokens": 5}, {"min_tokens": 5}),
        (RESPONSES, {"max_tokens": 5}, {"max_output_tokens": 5}),
        (MESSAGES, {"max_new_tokens": 5}, {"max_tokens": 5}),
        (MESSAGES, {"stop": "a"}, {"stop_sequences": ["a"]}),
        (MESSAGES, {"stop": ["a"]}, {"stop_sequences": ["a"]}),
        (CHATS, {"do_sample": False, "temperature": 0.7}, {"temperature": 0}),
        (CHATS, {"do_sample": True, "temperature": 0.7}, {"do_sample": True, "temperature": 0.7}),
        (CHATS, {"ban_eos_token": True}, {"ignore_eos": True}),
        (CHATS, {"stopping_strings": ["a"]}, {"stop": ["a"]}),
        (CHATS, {"num_return_sequences": 2}, {"n": 2}),
        (MESSAGES, {"ban_eos_token": False, "max_tokens_to_sample": 5}, {"max_tokens": 5}),
        ("/tokenize", {"n_predict": 5}, {"n_predict": 5}),
        # An answer that is begun is continued.
        (CHATS, _begun(prefix=True), _begun(prefix=True) | CONTINUED),
        (CHATS, _begun(partial=True), _begun(partial=True) | CONTINUED),
    ],
)
def test_another_name_is_read_as_that_of_the_path(
    path: str, given: dict[str, Any], read: dict[str, Any]
) -> None:
    assert _read(path, given) == read


@pytest.mark.parametrize(
    ("path", "given"),
    [
        (CHATS, {"thinking": {"type": "disabled"}}),
        (CHATS, {"enable_thinking": False}),
        (CHATS, {"nvext": {"guided_json": {}}}),
        (CHATS, {"truncation": "auto"}),
        (CHATS, {"min_tokens": 3}),
        (COMPLETIONS, {"tools": [{}]}),
        (RESPONSES, {"seed": 0.5}),
        (RESPONSES, {"n": 2}),
        (RESPONSES, {"sampling_seed": 5}),
        (MESSAGES, {"response_format": {"type": "json_object"}}),
        (MESSAGES, {"structured_outputs": {"regex": "a"}}),
        (MESSAGES, {"n_predict": 5, "max_tokens": 6}),
        (COMPLETIONS, {"n_predict": -1}),
        (COMPLETIONS, {"num_predict": -1}),
        ("/v1/embeddings", {"input_type": "query"}),
    ],
)
def test_what_the_path_does_not_read_is_refused_by_its_name(
    path: str, given: dict[str, Any]
) -> None:
    with pytest.raises(RequestError) as refused:
        _read(path, given)
    assert refused.value.field in given
    assert "accepted: " in str(refused.value)


@pytest.mark.parametrize(
    ("path", "given"),
    [
        (COMPLETIONS, {"watermark": True}),
        (CHATS, {"thinking": None, "enable_thinking": None, "truncation": "disabled", "tools": []}),
        (CHATS, {"response_format": {"type": "text"}, "top_k": -1, "xtc_probability": 0}),
        (RESPONSES, {"n": 1, "truncation": "auto", "reasoning": {"effort": "low"}}),
        (MESSAGES, {"thinking": {"type": "disabled"}, "frequency_penalty": 0.0}),
        # A turn that is whole is not continued.
        (CHATS, _begun(prefix=True) | {"continue_final_message": False}),
        (CHATS, _begun(prefix=False, partial=None)),
        (CHATS, {"messages": [BEGUN | {"prefix": True}, {"role": "user", "content": "a"}]}),
        (CHATS, {"messages": [{"role": "user", "content": "a", "prefix": True}]}),
        (CHATS, {"messages": ["a"]}),
        (CHATS, {"messages": []}),
    ],
)
def test_what_is_read_or_asks_for_nothing_stays(path: str, given: dict[str, Any]) -> None:
    assert _read(path, given) == given


def test_a_server_that_does_not_tell_what_it_reads_is_left_alone() -> None:
    body = json.dumps({"min_tokens": 3, "max_output_tokens": 3}).encode()
    assert check_body(body, BodyBounds(), CHATS).data == body
