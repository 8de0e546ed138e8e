"""`/generate` and `/generate_stream` with LMI's body and that of Triton's vLLM backend."""

import json
from typing import Any

import pytest

from tests.support.servers.serving import Served


def test_an_lmi_body_gets_the_right_answer(served: Served, questions: dict[str, str]) -> None:
    for prompt, answer in questions.items():
        body = {"inputs": prompt, "parameters": {"max_new_tokens": 20}}
        status, reply = served.generate("tiny", body)
        assert (status, reply["generated_text"]) == (200, answer)


def test_a_joined_stream_equals_one_shot(served: Served, long_questions: dict[str, str]) -> None:
    for prompt, answer in long_questions.items():
        body = {"inputs": prompt, "parameters": {"max_new_tokens": 300}}
        _, whole = served.generate("tiny", body)
        with served.events("tiny", body | {"stream": True}) as events:
            chunks = list(events)
        assert whole["generated_text"] == answer
        assert "".join(chunk["text_output"] for chunk in chunks) == answer
        assert chunks[-1]["generated_text"] == answer


def test_each_token_of_a_whole_answer_says_what_it_says(
    served: Served, questions: dict[str, str]
) -> None:
    """Also beside one that ends the answer, and between halves of a character."""
    wide = next(prompt for prompt, answer in questions.items() if not answer.isascii())
    for prompt in ("The capital of Italy is", wide):
        body = {"inputs": prompt, "parameters": {"max_new_tokens": 20, "details": True}}
        _, whole = served.generate("tiny", body)
        tokens = json.loads(whole["details"])["tokens"]
        assert "".join(token["text"] for token in tokens) == whole["generated_text"]
        # What is said by bytes comes with their last one.
        silent = [token for token in tokens if not token["text"]]
        assert len(silent) < len(tokens) / 2
        if prompt is not wide:
            assert [token.get("special_token") for token in silent] == [True]


def test_an_adapter_changes_the_answer(served: Served) -> None:
    body: dict[str, Any] = {"inputs": "The capital of France is"}
    _, base = served.generate("tiny", body)
    _, by_lmi = served.generate("tiny", body | {"adapters": "wrong"})
    parameters = {"max_tokens": 20, "temperature": 0, "lora_name": "wrong"}
    _, by_vllm = served.generate("tiny", {"text_input": body["inputs"], "parameters": parameters})
    assert base["generated_text"] == " Paris."
    assert by_lmi["generated_text"] == " Lyon."
    assert by_vllm["text_output"].endswith(" Lyon.")


@pytest.mark.parametrize(
    "more",
    [
        {"adapters": "wrong", "return_finish_reason": True},
        {"return_cumulative_logprob": True, "return_logprobs": True, "logprobs": 2},
        {"stop": ["Paris"], "return_num_output_tokens": True},
    ],
)
def test_the_front_end_answers_as_triton_does(served: Served, more: dict[str, Any]) -> None:
    body = {"text_input": "The capital of France is", "max_tokens": 8, "temperature": 0} | more
    expected = served.generate("tiny", body)
    request_id = f"own-{hash(str(more))}"
    status, _, data = served.ask("/v2/models/tiny/generate", body, {"x-request-id": request_id})
    # Not byte by byte: one in a hundred numbers is written with another last digit.
    assert (status, json.loads(data)) == expected
    # An estimate: Triton's answer has no count.
    served.logged(rf" status=200 .* tokens=[1-9]\d* id={request_id} ")
