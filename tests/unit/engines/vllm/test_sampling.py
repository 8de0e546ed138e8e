"""What of a request's sampling vLLM is given, where a release no longer takes all of it."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm import names
from lmi_backend.engines.vllm.requests import check_parameters, sampling_params
from lmi_backend.errors import ConfigurationError, RequestError
from lmi_backend.generation import GenerateRequest, Sampling


class Fewer:
    """SamplingParams without a member that vLLM has today."""

    def __init__(self, *, n: int = 1, max_tokens: int | None = 16, output_kind: Any = None) -> None:
        self.given = (n, max_tokens, output_kind)


class Anything:
    def __init__(self, **given: Any) -> None:
        self.given = given


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = SimpleNamespace(DELTA="delta", FINAL_ONLY="final")
    monkeypatch.setitem(vars(names), "RequestOutputKind", kind)
    monkeypatch.setitem(vars(names), "SamplingParams", Fewer)
    monkeypatch.setitem(vars(names), "VLLMClientError", ValueError)


def made(sampling: Sampling) -> Any:
    return sampling_params(GenerateRequest("a", sampling), {}, vocabulary=10).given


def test_what_changes_nothing_is_left_out_where_it_is_not_taken() -> None:
    assert made(Sampling(3)) == (1, 3, "delta")


@pytest.mark.parametrize(
    ("sampling", "named"),
    [
        (Sampling(3, ignore_eos=True), "ignore_eos"),
        (Sampling(3, stop=("a",)), "stop"),
        (Sampling(3, 0.0), "temperature"),
    ],
)
def test_what_changes_the_answer_is_refused_by_its_name(sampling: Sampling, named: str) -> None:
    with pytest.raises(RequestError, match=named):
        made(sampling)


def test_vllm_need_not_copy_parameters_that_nobody_else_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fresh(Fewer):
        def __init__(self, *, skip_clone: bool = False, **given: Any) -> None:
            super().__init__(**given)
            self.is_fresh = skip_clone

    def takes(
        *, n: int = 1, max_tokens: int = 16, output_kind: Any = None, skip_clone: bool
    ) -> Any:
        return Fresh(n=n, max_tokens=max_tokens, output_kind=output_kind, skip_clone=skip_clone)

    monkeypatch.setitem(vars(names), "SamplingParams", takes)
    assert sampling_params(GenerateRequest("a", Sampling(3)), {}, vocabulary=10).is_fresh


def test_a_function_that_takes_anything_is_given_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "SamplingParams", Anything)
    assert made(Sampling(3)).keys() > {"n", "stop", "bad_words", "spaces_between_special_tokens"}


def test_parameters_by_other_names_are_refused_by_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(names), "vllm_version", "0.99")
    with pytest.raises(ConfigurationError, match="SamplingParams takes no seed, stop, temp"):
        check_parameters()
    monkeypatch.setitem(vars(names), "SamplingParams", Anything)
    check_parameters()
