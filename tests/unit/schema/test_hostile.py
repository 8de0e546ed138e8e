"""Values a hostile or broken client may send: each is refused by name, none gets further."""

import json
from typing import Any

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest
from lmi_backend.schema.context import Context
from lmi_backend.schema.request import read_request


def read(inputs: dict[str, list[Any]], parameters: dict[str, Any]) -> GenerateRequest:
    taken = read_request([inputs], parameters, Context())
    assert isinstance(taken.work, tuple)
    return taken.work[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 2**63),
        ("seed", "1180591620717411303424"),
        ("seed", "x"),
        ("max_new_tokens", 2**64),
        ("temperature", 10**400),
        ("temperature", float("inf")),
        ("top_p", float("nan")),
        ("logit_bias", {"5": None}),
        ("logit_bias", {"a": 1}),
        ("stop", ["\ud800"]),
        ("stop_token_ids", [2**64]),
        ("allowed_token_ids", [True]),
        ("lora_name", "\udfff"),
        ("n", True),
    ],
)
def test_a_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        read({"text_input": ["p"]}, {name: value})
    assert refusal.value.field == name
    assert "literal for int" not in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, json.dumps({"stop": "\ud800"}), '{"temperature": 1e999}', "{", "null"]
)
def test_json_text_is_refused_or_read_to_the_end(text: str) -> None:
    with pytest.raises(RequestError):
        read({"text_input": ["p"], "sampling_parameters": [text]}, {})


def test_both_names_of_an_adapter_may_agree() -> None:
    request = read({"inputs": ["p"], "adapters": ["a"]}, {"lora_name": "a"})
    assert request.adapter == "a"


def test_do_sample_false_is_greedy_in_a_vllm_body_too() -> None:
    request = read({"text_input": ["p"]}, {"do_sample": False})
    assert request.sampling.temperature == 0.0
