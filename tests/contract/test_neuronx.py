"""NeuronX's adapter on the library's double, which has the values and limits of 0.4.5."""

from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, Sampling
from tests.contract.conftest import ENGINES

PROMPT = "Count to one hundred:"


@pytest.fixture(scope="module")
def properties(tiny_properties: dict[str, Any]) -> dict[str, Any]:
    names = ("option.model_id", "option.pythonExecutable", "option.dtype")
    return {name: tiny_properties[name] for name in names} | ENGINES["neuronx"]


@pytest.fixture(scope="module")
def engine(start: Any, properties: dict[str, Any], doubles: None) -> Iterator[Any]:
    with start(properties | {"option.on_device_generation": '{"top_k": 50}'}) as harness:
        yield harness


@pytest.mark.parametrize("sampling", [Sampling(4), Sampling(4, 0.0, seed=7), Sampling(4, 0.7)])
def test_the_device_chooses_by_temperature_top_k_and_top_p(engine: Any, sampling: Any) -> None:
    assert engine.submit([GenerateRequest(PROMPT, sampling)]).wait().error is None


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("logprobs", GenerateRequest(PROMPT, logprobs=1)),
        ("frequency_penalty", GenerateRequest(PROMPT, Sampling(frequency_penalty=1.0))),
        ("seed", GenerateRequest(PROMPT, Sampling(temperature=1.0, seed=7))),
        ("min_p", GenerateRequest(PROMPT, Sampling(temperature=1.0, min_p=0.1))),
        ("bad_words", GenerateRequest(PROMPT, Sampling(bad_words=("one",)))),
    ],
)
def test_what_needs_logits_is_refused_there(engine: Any, field: str, request_: Any) -> None:
    error = engine.submit([request_]).wait().error
    assert isinstance(error, RequestError)
    assert field in str(error)
    assert "on_device_generation" in str(error)


def test_one_request_runs_at_once(engine: Any) -> None:
    assert engine.plan.limits.max_running == 1


def test_a_type_of_weights_is_told_as_torchs_own(
    start: Any, properties: dict[str, Any], doubles: None
) -> None:
    """The double asks torch's type for its size, as the library does; text has none."""
    with start(properties | {"option.dtype": "fp16"}) as harness:
        drawn = GenerateRequest(PROMPT, Sampling(4, 0.9, seed=7, min_p=0.05))
        assert harness.submit([drawn]).wait().text == harness.submit([drawn]).wait().text
