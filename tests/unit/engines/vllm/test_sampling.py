"""What of a request's sampling vLLM is given."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import names
from lmi_backend.engines.vllm.requests import sampling_params
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest, Sampling


class Anything:
    """Takes what it is given, as SamplingParams of each release does."""

    def __init__(self, **given: Any) -> None:
        self.given = given


class Refusing:
    def __init__(self, **given: Any) -> None:
        raise ValueError("no such stop")


class Fresh(Anything):
    skip_clone = False


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = SimpleNamespace(DELTA="delta", FINAL_ONLY="final")
    monkeypatch.setitem(vars(names), "RequestOutputKind", kind)
    monkeypatch.setitem(vars(names), "VLLMClientError", ValueError)


def made(kind: type) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(names), "SamplingParams", kind)
        return sampling_params(GenerateRequest("a", Sampling(3)), {}, vocabulary=10).given


@pytest.mark.parametrize("kind", [Anything, Fresh])
def test_vllm_need_not_copy_parameters_that_nobody_else_has(kind: type) -> None:
    assert made(kind).get("skip_clone") == (True if kind is Fresh else None)


def test_what_vllm_does_not_take_is_the_clients_error() -> None:
    with pytest.raises(RequestError, match="sampling parameters are refused by vLLM: no such stop"):
        made(Refusing)
