"""LiteLLM, LangChain, Hugging Face's and Anthropic's clients."""

from typing import Any

import pytest

from tests.clients.conftest import ResultsOf, refusal_in

ROME = "The capital of Italy is Rome."


@pytest.mark.parametrize(
    "name",
    ["chat_streamed", "hosted_vllm", "anthropic", "sagemaker_chat", "sagemaker_chat_streamed"],
)
def test_litellm_chats(results_of: ResultsOf, name: str) -> None:
    assert results_of("use_litellm")[name] == ROME


def test_litellm(results_of: ResultsOf) -> None:
    answers = results_of("use_litellm")
    assert answers["chat"] == [ROME, True]
    assert answers["text_completion"] == " Rome."
    assert answers["sagemaker"] is True
    assert answers["sagemaker_streamed"] is True


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("unknown_model", "NotFoundError"),
        ("bad_value", "BadRequestError"),
        ("wrong_key", "AuthenticationError"),
    ],
)
def test_litellm_tells_errors_apart(results_of: ResultsOf, name: str, error: str) -> None:
    assert results_of("use_litellm")[name]["raised"] == error


def test_langchain(results_of: ResultsOf) -> None:
    answers = results_of("use_langchain")
    assert answers["invoke"] == [ROME, True]
    assert answers["stream"] == ROME
    assert answers["batch"] == [ROME, "The capital of Japan is Tokyo."]
    assert answers["tools"] == ["travel"]
    assert answers["structured"] == "Rome"
    assert answers["completion"] == " Rome."
    assert answers["unknown_model"]["raised"] == "OpenAIModelNotFoundError"


@pytest.fixture(params=["tiny", "small"])
def hugging_face(request: pytest.FixtureRequest, results_of: ResultsOf) -> Any:
    return results_of("use_huggingface", request.param)


def test_hugging_face_generates(hugging_face: Any) -> None:
    for name in ("text", "streamed", "generate", "generate_stream"):
        assert hugging_face[name] == " Rome.", name
    assert hugging_face["full_text"] == "The capital of Italy is Rome."
    assert hugging_face["chat"] == hugging_face["chat_streamed"] == ROME


def test_hugging_face_gets_details(hugging_face: Any) -> None:
    text, end, tokens, joined, is_special, has_prefill = hugging_face["details"]
    assert (text, end, joined.rstrip("</s>")) == (" Rome.", "eos_token", " Rome.")
    assert tokens > 3
    assert is_special
    assert has_prefill
    places, joined, whole, end = hugging_face["streamed_details"]
    assert places == [1, 2, 3]
    assert joined == whole
    assert end == ["length", 3]


def test_a_stop_sequence_is_part_of_the_text_as_its_server_has_it(hugging_face: Any) -> None:
    assert hugging_face["stop"] == [" Rom", "stop_sequence"]


def test_hugging_face_gets_the_best_of_some(results_of: ResultsOf) -> None:
    assert results_of("use_huggingface")["best_of"] == 1


def test_hugging_face_tells_errors_apart(hugging_face: Any) -> None:
    assert hugging_face["wrong_value"]["raised"] == "ValidationError"
    assert hugging_face["wrong_key"]["raised"] == "UnknownError"


def test_anthropic(results_of: ResultsOf) -> None:
    answers = results_of("use_anthropic")
    text, end, tokens, role = answers["message"]
    assert (text, end, role) == (ROME, "end_turn", "assistant")
    assert answers["streamed"] == [ROME, "end_turn", tokens]
    assert answers["events"][:2] == ["message_start", "message_stop"]
    assert answers["count"] == 12


def test_anthropic_tells_errors_apart(results_of: ResultsOf) -> None:
    answers = results_of("use_anthropic")
    kind, status, body = refusal_in(answers["unknown_model"])
    assert (kind, status, body["error"]["type"]) == ("NotFoundError", 404, "not_found_error")
    assert refusal_in(answers["bad_value"])[:2] == ("BadRequestError", 400)
    kind, status, body = refusal_in(answers["wrong_key"])
    assert (kind, status) == ("AuthenticationError", 401)
    assert body["error"]["type"] == "authentication_error"
