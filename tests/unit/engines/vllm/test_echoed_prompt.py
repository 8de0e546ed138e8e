"""Prompts that a completion shows, in outputs as vLLM merges them."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.vllm_server import EchoedPrompt

OF_PROMPT = [None, {5: -1.0}]


def _output(logprobs: Any, *ids: list[int]) -> Any:
    outputs = [SimpleNamespace(text="a", token_ids=each) for each in ids]
    return SimpleNamespace(prompt_logprobs=logprobs, outputs=outputs)


def test_an_answer_whose_first_token_was_merged_with_anothers_second_has_the_prompts() -> None:
    echoed = EchoedPrompt(SimpleNamespace(n=2), is_all=False)
    first, merged, last = _output(OF_PROMPT, [1]), _output([], [2], [3]), _output([], [4])
    for output in (first, merged, last):
        assert echoed.mended(output).prompt_logprobs == OF_PROMPT
    assert [each.token_ids for each in merged.outputs] == [[2], [3]]


def test_one_answer_stays_as_it_is() -> None:
    echoed = EchoedPrompt(SimpleNamespace(n=1), is_all=False)
    outputs = [_output(OF_PROMPT, [1]), _output([], [2])]
    mended = [echoed.mended(output) for output in outputs]
    assert mended == [_output(OF_PROMPT, [1]), _output([], [2])]


def test_a_token_that_nobody_wants_is_left_out() -> None:
    output = _output(OF_PROMPT, [1])
    output = EchoedPrompt(SimpleNamespace(n=1), is_all=True).mended(output)
    assert output.prompt_logprobs == OF_PROMPT
    assert output.outputs == [SimpleNamespace(text="", token_ids=[])]


@pytest.mark.parametrize(
    ("given", "is_echoed", "prompt", "found"),
    [
        ({"type": "token", "prompt_token_ids": [1]}, True, None, ""),
        ({"type": "token", "prompt_token_ids": [1]}, False, None, None),
        ({"type": "token", "prompt_token_ids": [1]}, True, "a", "a"),
        ({"type": "token", "prompt_token_ids": [1, 5], "prompt": "a"}, True, None, None),
        ({"type": "embeds"}, True, None, None),
        ("a", True, None, None),
    ],
)
def test_an_empty_text_that_the_server_leaves_out_is_empty(
    given: Any, prompt: str | None, found: str | None, *, is_echoed: bool
) -> None:
    output = _output(OF_PROMPT, [1])
    output.prompt = prompt
    echoed = EchoedPrompt(SimpleNamespace(n=1), given, is_all=False, is_echoed=is_echoed)
    assert echoed.mended(output).prompt == found
