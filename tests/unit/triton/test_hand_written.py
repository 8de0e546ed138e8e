"""A config.pbtxt that somebody wrote: what is served, and what is refused by name."""

import re
from typing import Any

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from lmi_backend.errors import PlanError
from lmi_backend.repository.model_config import model_config, render
from lmi_backend.repository.variants import VARIANTS
from lmi_backend.triton.hand_written import checked_variant
from tests.support.run.places import ROOT

PAGE = (ROOT / "docs" / "triton-fleet.md").read_text("utf-8")
WARM = "inputs { key: '%s' value { data_type: TYPE_STRING dims: [1] input_data_file: 'p' } } %s"
NUMBER = "inputs { key: 'stream' value { data_type: TYPE_BOOL dims: [1] zero_data: true } }"
ROWS = re.findall(r"^\| `([^`]+)` \| (serves|refused)\b", PAGE, re.MULTILINE)


def as_triton_hands_it(text: str) -> dict[str, Any]:
    """Return the JSON of a configuration, with what Triton fills in."""
    config = text_format.Parse(text, ModelConfig())
    config.name = config.name or "m"
    for group in config.instance_group:
        group.count = group.count or 1
    made = json_format.MessageToDict(
        config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return dict(_with_numbers(made))


def _with_numbers(value: Any) -> Any:
    """Return JSON with numbers of 64 bits as numbers, which protobuf writes as texts."""
    if isinstance(value, dict):
        return {name: _with_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_numbers(each) for each in value]
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value


def problem_of(text: str) -> str:
    config = as_triton_hands_it(text)
    try:
        checked_variant(config)
    except PlanError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("text", "outcome"), ROWS)
def test_each_row_of_the_page_is_so(text: str, outcome: str) -> None:
    problem = problem_of(text)
    assert bool(problem) == (outcome == "refused"), problem
    assert not problem or re.match(rf"config.pbtxt: {re.split('[^a-z_]', text)[0]}\b", problem)
    assert not problem or "accepted: " in problem


def test_the_page_has_each_field_of_triton() -> None:
    names = [field.name for field in ModelConfig.DESCRIPTOR.fields]
    assert [name for name in names if not re.search(rf"`[^`\n]*\b{name}\b", PAGE)] == []


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=list(VARIANTS))
def test_what_convert_writes_is_served(variant: Any) -> None:
    config = model_config(name="m", parameters={"clients": variant.clients}, variant=variant)
    assert problem_of(render(config)) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("max_batch_size: 8 sequence_batching { }", "max_batch_size: 8; accepted: 0; the engine"),
        ("max_batch_size: 8 sequence_batching { }", "sequence_batching: "),
        (
            "model_transaction_policy { }",
            'model_transaction_policy: {"decoupled": false}; accepted',
        ),
        ("input { name: 'x\\x1b' }", "input x\\x1b: is not read here; accepted: text_input, "),
        (
            "input { name: 'text_input', dims: [-1], optional: true }",
            'input text_input: {"dims": [-1]}; accepted: {"dims": [1]}',
        ),
        (
            "output { name: 'text_output', label_filename: 'a' }",
            'output text_output: {"label_filename": "a"}; accepted: without it',
        ),
        ("version_policy { latest { num_versions: 2 } }", "version_policy: "),
        ("version_policy { specific { versions: [1, 2] } }", "version_policy: "),
        ("instance_group { kind: KIND_GPU, gpus: [0, 1] }", "would start this model 2 times"),
        ("model_warmup { name: 'w' }", "model_warmup: "),
        ("model_warmup { name: 'w' batch_size: 1 }", "model_warmup: "),
        (f"model_warmup {{ name: 'w' batch_size: 1 {WARM % ('none', '')} }}", "model_warmup: "),
        (f"model_warmup {{ name: 'w' batch_size: 1 {WARM % ('inputs', NUMBER)} }}", "model_warmup"),
        ("optimization { priority: PRIORITY_MAX }", "optimization: "),
        (
            "parameters { key: 'clients', value { string_value: 'x' } }",
            "clients: x; accepted: vllm",
        ),
    ],
)
def test_a_field_is_named_with_what_is_accepted(text: str, problem: str) -> None:
    assert problem in problem_of(text)


def test_the_only_gpu_of_a_server_is_tritons_word() -> None:
    assert problem_of("instance_group { kind: KIND_GPU, gpus: [0] }") == ""
