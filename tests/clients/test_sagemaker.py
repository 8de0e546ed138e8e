"""`boto3`'s sagemaker-runtime, with this server as its endpoint_url."""

import json
from typing import Any

import pytest

from tests.clients.conftest import ResultsOf

LMI = {"generated_text": " Rome."}
ROME = "The capital of Italy is Rome."


@pytest.fixture(params=["tiny", "small"])
def either(request: pytest.FixtureRequest, results_of: ResultsOf) -> Any:
    return results_of("use_boto3", request.param)


def test_an_endpoint_is_invoked(either: Any) -> None:
    assert either["lmi"] == ["application/json", LMI, "AllTraffic"]
    assert either["chat"] == ROME


@pytest.mark.parametrize(
    "name", ["endpoint_is_the_model", "target_model_file", "inference_component"]
)
def test_a_model_is_named_in_many_ways(either: Any, name: str) -> None:
    assert either[name] == LMI


def test_answers_come_as_amazons_events(either: Any) -> None:
    assert either["lmi_streamed"] == ["application/jsonlines", " Rome."]
    assert either["long_streamed"] > 1
    assert either["lmi_not_streamed"] == ["application/json", LMI]
    kind, text, end = either["chat_streamed"]
    assert kind.startswith("text/event-stream")
    assert (text, end) == (ROME, "[DONE]")


@pytest.mark.parametrize(
    ("name", "status"), [("wrong_body", 424), ("wrong_chat", 400), ("wrong_streamed", 424)]
)
def test_the_containers_error_is_a_model_error(either: Any, name: str, status: int) -> None:
    kind, shown, original = either[name]
    assert (kind, shown, original["OriginalStatusCode"]) == ("ModelError", 424, status)
    assert json.loads(original["OriginalMessage"])["error"]


def test_errors_of_the_service(either: Any) -> None:
    assert either["unknown_endpoint"][:2] == ["ValidationError", 400]
    assert either["wrong_key"] == ["UnrecognizedClientException", 403]
