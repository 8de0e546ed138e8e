"""What a request is to vLLM, and what its outputs become."""

from enum import Enum
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi_backend.engines.vllm import names, requests
from lmi_backend.engines.vllm.requests import OutputReader, sampling_params
from lmi_backend.errors import EngineError, RequestError
from lmi_backend.generation import Delta, GenerateRequest, Sampling
from tests.unit.engines.vllm.vllm_parts import CompletionOutput, Logprob, RequestOutput


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


@pytest.mark.parametrize(
    "given",
    [
        None,
        {"mine": "x", "other": [1]},
        {"kv_transfer_params": {"do_remote": True}, "ec_transfer_params": None},
        {"diffusion_canvas_length": 64, "diffusion_max_steps": 0},
    ],
)
def test_what_the_core_can_read_is_taken(given: Any) -> None:
    requests.check_extra_arguments(given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv_transfer_params", "x"),
        ("ec_transfer_params", [1]),
        ("diffusion_canvas_length", "wide"),
        ("diffusion_max_steps", 1.5),
        ("diffusion_max_steps", True),
        ("diffusion_canvas_length", -1),
        ("diffusion_canvas_length", 1 << 62),
    ],
)
def test_what_it_cannot_read_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=rf"vllm_xargs.{name} .*; accepted: an? "):
        requests.check_extra_arguments({name: value})


@pytest.mark.parametrize(
    ("before", "last", "text"),
    [(3, 1, "after 3 tokens"), (0, 4, "after 3 tokens"), (0, 1, "fit no"), (0, 0, "fit no")],
)
def test_the_token_that_fits_no_structure_is_not_counted(before: int, last: int, text: str) -> None:
    """However many tokens vLLM has merged with it."""
    assert text in requests.unfit(before, last)


def deltas(answer: CompletionOutput) -> list[Delta]:
    reader = OutputReader(None, GenerateRequest("a"))
    return [*reader.deltas(RequestOutput("a", None, None, None, [answer], False))]


def test_an_answer_that_vllm_ends_with_an_error_is_none() -> None:
    """As its own server has it; LMI's clients would get the half text as the whole answer."""
    with pytest.raises(EngineError, match="vLLM failed on the request"):
        deltas(CompletionOutput(0, "half", [1], finish_reason="error"))


def test_the_first_token_of_a_prompt_has_its_text() -> None:
    """VLLM gives no log probability of it, and the text only with one."""
    tokenizer = SimpleNamespace(all_special_ids=[1], decode=lambda ids: f"<{ids[0]}>")
    reader = OutputReader(tokenizer, GenerateRequest("a", prompt_logprobs=0))
    answer = CompletionOutput(0, "", [], finish_reason="stop")
    known = {2: Logprob(-1.0, 1, "b")}
    (delta,) = reader.deltas(RequestOutput("a", None, [1, 2], [None, known], [answer], True))
    first, second = delta.prompt_tokens
    assert (first.text, first.logprob, first.is_special) == ("<1>", None, True)
    assert (second.text, second.logprob) == ("b", -1.0)


def ended(reason: Any) -> list[Delta]:
    answer: Any = CompletionOutput(0, "", [], finish_reason=reason)
    answer.text = None
    return deltas(answer)


class Reason(str, Enum):
    """As a release may have it."""

    LENGTH = "length"

    def __str__(self) -> str:
        return self.value


def test_what_the_stub_could_not_read_is_never_sent(caplog: pytest.LogCaptureFixture) -> None:
    """It would take the worker for broken, with all of its streams."""
    (delta,) = ended(Reason.LENGTH)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(delta), type=Delta) == Delta(
        finish_reason="length"
    )
    assert not caplog.records
    for _ in range(2):
        (delta,) = ended("out_of_budget")
        assert delta.finish_reason == "stop"
    assert [record.args for record in caplog.records] == [("out_of_budget",)]
    with pytest.raises(EngineError, match="no reason why an answer is finished: 1"):
        ended(1)


def test_a_prompt_that_comes_once_is_counted_in_each_delta() -> None:
    """A release may leave it out of later outputs; the last delta has the counts of the answer."""
    reader, counts = OutputReader(None, GenerateRequest("a")), []
    for prompt in ([1, 2], None):
        output = RequestOutput("a", None, prompt, None, [CompletionOutput(0, "b", [5])], False)
        counts += [each.num_prompt_tokens for each in reader.deltas(output)]
    assert counts == [2, 2]
