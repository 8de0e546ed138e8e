"""What vLLM's outputs become."""

from enum import Enum
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi_backend.engines.vllm import requests
from lmi_backend.engines.vllm.requests import OutputReader
from lmi_backend.errors import EngineError
from lmi_backend.generation import Delta, GenerateRequest


def test_an_answer_that_vllm_ends_with_an_error_is_none() -> None:
    """As its own server has it; LMI's clients would get the half text as the whole answer."""
    answer = SimpleNamespace(
        finish_reason="error", text="half", token_ids=(1,), stop_reason=None, index=0
    )
    reader = OutputReader(None, GenerateRequest("a"))
    with pytest.raises(EngineError, match="vLLM failed on the request"):
        list(reader.deltas(SimpleNamespace(prompt_token_ids=(1,), outputs=[answer])))


def test_the_first_token_of_a_prompt_has_its_text() -> None:
    """VLLM gives no log probability of it, and the text only with one."""
    tokenizer = SimpleNamespace(all_special_ids=[1], decode=lambda ids: f"<{ids[0]}>")
    reader = OutputReader(tokenizer, GenerateRequest("a", prompt_logprobs=0))
    answer = SimpleNamespace(finish_reason="stop", text="", token_ids=(), stop_reason=None, index=0)
    known = SimpleNamespace(logprob=-1.0, rank=1, decoded_token="b")
    output = SimpleNamespace(
        prompt_token_ids=(1, 2), prompt_logprobs=[None, {2: known}], outputs=[answer]
    )
    (delta,) = reader.deltas(output)
    first, second = delta.prompt_tokens
    assert (first.text, first.logprob, first.is_special) == ("<1>", None, True)
    assert (second.text, second.logprob) == ("b", -1.0)


def test_log_probabilities_that_are_elsewhere_fail_the_request() -> None:
    """A release may have them under another name; an answer without them would look whole."""
    reader = OutputReader(None, GenerateRequest("a", logprobs=0))
    answer = SimpleNamespace(
        finish_reason=None, text="b", token_ids=(5,), stop_reason=None, index=0, logprobs=None
    )
    output = SimpleNamespace(prompt_token_ids=(1,), outputs=[answer])
    with pytest.raises(EngineError, match="vLLM gives no log probabilities with its tokens"):
        list(reader.deltas(output))


def ended(reason: object) -> list[Any]:
    answer = SimpleNamespace(
        finish_reason=reason, text=None, token_ids=[], stop_reason=None, index=0
    )
    reader = OutputReader(None, GenerateRequest("a"))
    return list(reader.deltas(SimpleNamespace(prompt_token_ids=None, outputs=[answer])))


class Reason(str, Enum):
    """As a release may have it."""

    LENGTH = "length"

    def __str__(self) -> str:
        return self.value


def test_what_the_stub_could_not_read_is_never_sent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the worker for broken, with all of its streams."""
    (delta,) = ended(Reason.LENGTH)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(delta), type=Delta) == Delta(
        finish_reason="length"
    )
    assert not caplog.records
    monkeypatch.setattr(requests, "_REASONS", dict(requests._REASONS))
    for _ in range(2):
        (delta,) = ended("out_of_budget")
        assert delta.finish_reason == "stop"
    assert [record.args for record in caplog.records] == [("out_of_budget",)]
    with pytest.raises(EngineError, match="no reason why an answer is finished: 1"):
        ended(1)


def test_a_prompt_that_comes_once_is_counted_in_each_delta() -> None:
    """A release may leave it out of later outputs; the last delta has the counts of the answer."""
    reader = OutputReader(None, GenerateRequest("a"))
    counts = []
    for prompt in ((1, 2), None):
        answer = SimpleNamespace(
            finish_reason=None, text="b", token_ids=[5], stop_reason=None, index=0
        )
        output = SimpleNamespace(prompt_token_ids=prompt, outputs=[answer])
        counts += [each.num_prompt_tokens for each in reader.deltas(output)]
    assert counts == [2, 2]
