"""What vLLM's outputs become."""

from types import SimpleNamespace

import pytest

from lmi_backend.engines.vllm.inside.outputs import OutputReader
from lmi_backend.errors import EngineError
from lmi_backend.generation import GenerateRequest


def test_an_answer_that_vllm_ends_with_an_error_is_none() -> None:
    """As its own server has it; LMI's clients would get the half text as the whole answer."""
    answer = SimpleNamespace(
        finish_reason="error", text="half", token_ids=(1,), stop_reason=None, index=0
    )
    reader = OutputReader(None, GenerateRequest("a"))
    with pytest.raises(EngineError, match="vLLM failed on the request"):
        list(reader.deltas(SimpleNamespace(prompt_token_ids=(1,), outputs=[answer])))


@pytest.mark.parametrize(
    ("given", "sums"), [({}, [-1.0, -3.0]), ({"cumulative_logprob": 7}, [7, 7])]
)
def test_the_sum_of_log_probabilities_is_made_where_vllm_leaves_it_out(
    given: dict[str, int], sums: list[float]
) -> None:
    reader = OutputReader(None, GenerateRequest("a", logprobs=0))
    deltas = []
    for logprob in (-1.0, -2.0):
        token = SimpleNamespace(logprob=logprob, rank=1, decoded_token="b")
        answer = SimpleNamespace(
            finish_reason=None, text="b", token_ids=(5,), stop_reason=None, index=0, **given
        )
        answer.logprobs = [{5: token}]
        output = SimpleNamespace(prompt_token_ids=(1,), outputs=[answer])
        deltas += reader.deltas(output)
    assert [each.cumulative_logprob for each in deltas] == sums


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
