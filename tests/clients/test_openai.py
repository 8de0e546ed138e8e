"""The `openai` package, on vLLM's own server code and on ours."""

from datetime import datetime
from typing import Any

import pytest

from tests.clients.conftest import ResultsOf, refusal_in
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served

ROME = "The capital of Italy is Rome."


@pytest.fixture(params=["tiny", "small"])
def either(request: pytest.FixtureRequest, results_of: ResultsOf) -> Any:
    """What the script says of a model on vLLM, and of one without such a server."""
    return results_of("use_openai", request.param)


@pytest.fixture
def vllm(results_of: ResultsOf) -> Any:
    return results_of("use_openai")


def test_a_chat(either: Any) -> None:
    text, end, tokens = either["chat"]
    assert (text, end) == (ROME, "stop")
    assert tokens > 3
    assert either["raw_headers"] == ["application/json", True]


def test_a_streamed_chat_ends_with_its_usage(either: Any) -> None:
    text, ends, usage = either["chat_streamed"]
    assert (text, ends) == (ROME, ["stop"])
    assert usage == [either["chat"][2]]


def test_the_librarys_stream_helper(either: Any) -> None:
    text, kinds = either["chat_stream_helper"]
    assert text == ROME
    assert {"chunk", "content.delta", "content.done"} <= set(kinds)


def test_completions(either: Any) -> None:
    assert either["completion"] == [[0, 4], [1, 4], [2, 4]]
    assert either["completion_streamed"] == " Rome."
    assert either["two_prompts"] == [" Rome.", " Tokyo."]


def test_log_probabilities_of_several_answers(either: Any) -> None:
    answers = either["chat_logprobs"]
    assert len(answers) == 2
    assert all(set(tokens) == {2} for tokens in answers)


def test_served_names_and_adapters_are_models(vllm: Any) -> None:
    assert vllm["chat_by_served_name"] == ROME
    assert vllm["chat_by_adapter"] == " Lyon."


def test_tools(vllm: Any) -> None:
    assert vllm["tool_required"] == ["tool_calls", ["travel"]]
    assert vllm["tool_named"] == ["travel"]
    assert vllm["tool_streamed"] == ["travel"]
    assert vllm["tool_none"] == ROME


def test_structured_output(vllm: Any) -> None:
    assert vllm["json_schema"] == {"city": "Rome"}
    assert vllm["parsed"] == "City"


def test_models_are_listed_and_found(either: Any) -> None:
    assert set(either["models"]) == {"tiny", "small", "rome", "lmi", "wrong"}
    assert either["model"] in (["tiny", "model"], ["small", "model"])


def test_async_clients(either: Any, vllm: Any) -> None:
    assert either["async_stream"] == ROME
    assert vllm["many_at_once"] == [ROME]


def test_responses(vllm: Any) -> None:
    assert vllm["response"] == [ROME, "completed"]
    assert vllm["response_streamed"] == [ROME, "response.created", "response.completed"]
    assert vllm["response_resumed"] == [ROME, True, "response.completed", ROME]


def test_a_response_in_the_background(vllm: Any) -> None:
    expected = [True, True, ROME, "completed", ROME, True, "cancelled", "cancelled"]
    assert vllm["response_in_background"] == expected


def test_an_unknown_model(either: Any) -> None:
    kind, status, body = refusal_in(either["unknown_model"])
    message, names = body.pop("message").split(" Served: ")
    assert message == "The model `none` does not exist."
    assert {"tiny", "small", "wrong"} <= set(names.removesuffix(".").split(", "))
    assert body == {"type": "NotFoundError", "param": "model", "code": 404}
    assert (kind, status) == ("NotFoundError", 404)
    assert either["unknown_model"]["has_id"]
    assert either["unknown_model_retrieved"]["raised"] == "NotFoundError"
    assert either["unknown_path"]["raised"] == "NotFoundError"


@pytest.mark.parametrize("name", ["bad_value", "too_long"])
def test_a_wrong_body(either: Any, name: str) -> None:
    kind, status, body = refusal_in(either[name])
    assert (kind, status, either[name]["has_id"]) == ("BadRequestError", 400, True)
    assert body["code"] == 400
    assert body["message"]


def test_a_wrong_type(vllm: Any) -> None:
    assert refusal_in(vllm["bad_type"])[:2] == ("BadRequestError", 400)


def test_a_wrong_key(either: Any) -> None:
    kind, status, body = refusal_in(either["no_key"])
    assert (kind, status) == ("AuthenticationError", 401)
    assert body["type"] == "AuthenticationError"


def test_what_a_model_cannot_do(either: Any) -> None:
    kind, status, _ = refusal_in(either["embeddings"])
    assert (kind, status) in (("BadRequestError", 400), ("NotFoundError", 404))


def test_a_server_that_is_full_says_when_to_come_again(results_of: ResultsOf) -> None:
    refused = results_of("retry_openai", "small")["not_retried"]
    assert refused
    for status, after, body in refused:
        assert (status, after) == (503, "1")
        assert body["code"] == 503


def test_the_library_comes_again_by_itself(results_of: ResultsOf) -> None:
    assert len(results_of("retry_openai", "small")["retried"]) == 4


def test_a_closed_stream_frees_the_engine(results_of: ResultsOf, served: Served) -> None:
    pauses = []
    for number in range(3):
        before = len(_cancellations(served))
        closed = results_of("use_openai", ONLY="closed_stream" + "," * number)["closed_stream"]
        # The log is written a moment later.
        wait_for(lambda before=before: len(_cancellations(served)) > before)  # type: ignore[misc]
        pauses.append(_cancellations(served)[-1] - closed)
    assert min(pauses) < 0.1


def _cancellations(served: Served) -> list[float]:
    """Return when requests of `tiny` were cancelled, by the server's log."""
    lines = served.log().splitlines()
    return [
        datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S.%f").astimezone().timestamp()
        for line in lines
        if "model=tiny" in line and "outcome=cancelled" in line
    ]
