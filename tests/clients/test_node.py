"""Programs for Node.js: OpenAI's, Anthropic's, Hugging Face's and Amazon's clients, the AI SDK."""

from typing import Any

import pytest

from tests.clients.conftest import ResultsOf

ROME = "The capital of Italy is Rome."
CITY = {"city": "Rome"}


@pytest.fixture(params=["tiny", "small"])
def either(request: pytest.FixtureRequest) -> str:
    """A model on vLLM, and one without an OpenAI server of its engine's."""
    return str(request.param)


def test_openai(results_of: ResultsOf, either: str) -> None:
    answers = results_of("use_openai.cjs", either)
    text, end, tokens = answers["chat"]
    assert (text, end) == (ROME, "stop")
    assert tokens > 3
    assert answers["streamed"] == [ROME, ["stop"], [tokens]]
    assert answers["helper"] == ROME
    assert {"tiny", "small"} <= set(answers["models"])
    assert answers["unknown_model"] == ["NotFoundError", 404, True]
    assert answers["bad_value"] == ["BadRequestError", 400, True]
    assert answers["wrong_key"][:2] == ["AuthenticationError", 401]


def test_openai_gets_tools_structures_and_responses(results_of: ResultsOf) -> None:
    answers = results_of("use_openai.cjs")
    assert answers["tool"] == ["travel"]
    assert answers["structured"] == CITY
    ends = ["response.created", "response.completed"]
    assert answers["response"] == [ROME, "completed", ROME, *ends]


def test_the_ai_sdk(results_of: ResultsOf) -> None:
    answers = results_of("use_ai_sdk.cjs")
    text, end, tokens = answers["text"]
    assert (text, end) == (ROME, "stop")
    assert tokens > 3
    assert answers["streamed"] == [ROME, "stop", False, True]
    assert answers["object"] == CITY
    assert answers["unknown_model"][1:] == ["AI_APICallError", 404]
    assert answers["bad_value"][1:] == ["AI_APICallError", 400]
    assert answers["wrong_key"][1:] == ["AI_APICallError", 401]


def test_the_ai_sdk_runs_a_tool_and_goes_on(results_of: ResultsOf) -> None:
    assert results_of("use_ai_sdk.cjs")["tool_loop"] == [1, 2, ["You are there."]]


def test_anthropic(results_of: ResultsOf) -> None:
    answers = results_of("use_anthropic.cjs")
    assert answers["message"][:2] == [ROME, "end_turn"]
    assert answers["streamed"] == [ROME, "end_turn", "message_start", "message_stop"]
    assert answers["count"] == 12
    assert answers["unknown_model"] == ["NotFoundError", 404, "not_found_error"]
    assert answers["bad_value"] == ["BadRequestError", 400, "invalid_request_error"]
    assert answers["wrong_key"] == ["AuthenticationError", 401, "authentication_error"]


def test_hugging_face(results_of: ResultsOf, either: str) -> None:
    answers = results_of("use_huggingface.cjs", either)
    assert answers["text"] == " Rome."
    assert answers["text_streamed"] == " Rome."
    assert answers["chat"] == [ROME, "stop"]
    assert answers["chat_streamed"] == ROME
    for name, status in {"unknown_model": 404, "bad_value": 400, "wrong_key": 401}.items():
        assert answers[name][1:] == [status], name


def test_sagemaker(results_of: ResultsOf, either: str) -> None:
    answers: Any = results_of("use_sagemaker.cjs", either)
    assert answers["invoke"] == " Rome."
    assert answers["streamed"] == [" Rome.", " Rome."]
    assert answers["bad_value"] == ["ModelError", 424, 424]
    assert answers["wrong_key"][1] == 403
