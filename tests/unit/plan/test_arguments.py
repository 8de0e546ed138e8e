from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import OptionError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan.arguments import engine_arguments
from lmi_backend.plan.engine_plan import Explanation
from lmi_backend.plan.strategy import Degrees


def arguments(text: str) -> dict[str, Any]:
    options = resolve_options(parse_properties(text), {}, folder=Path("/models/m"))
    made = engine_arguments(options, Degrees(2, 1), 8, Explanation())
    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    return {name: value for name, value in made.items() if name not in sizes}


def test_a_dot_goes_into_an_object_and_a_value_is_translated() -> None:
    text = "option.rolling_batch=trtllm\noption.enable_block_reuse=false\noption.dtype=bf16\n"
    made = arguments(text + "option.enable_trt_overlap=true\noption.use_cuda_graph=false")
    assert made["kv_cache_config"]["enable_block_reuse"] is False
    assert made["dtype"] == "bfloat16"
    assert made["disable_overlap_scheduler"] is False
    assert made["cuda_graph_config"] is None
    assert made["max_batch_size"] == 8


def test_lmis_defaults_count_where_the_guide_has_them() -> None:
    assert arguments("option.rolling_batch=lmi-dist")["gpu_memory_utilization"] == 0.9
    assert "gpu_memory_utilization" not in arguments("option.rolling_batch=vllm")
    set_by_user = "option.rolling_batch=lmi-dist\noption.gpu_memory_utilization=0.5"
    assert arguments(set_by_user)["gpu_memory_utilization"] == 0.5


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        ("speculative_draft_model=org/d", {"model": "org/d", "num_speculative_tokens": 5}),
        ("speculative_config={}\noption.speculative_length=2", {"num_speculative_tokens": 2}),
        (
            'speculative_length=2\noption.speculative_config={"model": "org/d"}',
            {"model": "org/d", "num_speculative_tokens": 2},
        ),
        (
            "speculative_model=[ngram]\noption.ngram_prompt_lookup_max=4",
            {"method": "ngram", "prompt_lookup_max": 4, "num_speculative_tokens": 5},
        ),
    ],
)
def test_older_speculative_options_become_the_object(text: str, draft: dict[str, Any]) -> None:
    assert arguments(f"option.{text}")["speculative_config"] == draft


def test_acceptance_is_measured_only_where_something_is_drafted() -> None:
    text = "option.rolling_batch=lmi-dist\noption.record_acceptance_rate=true"
    assert "per_request_spec_decode_metrics" not in arguments(text)
    drafted = f"{text}\noption.speculative_draft_model=org/d"
    assert arguments(drafted)["per_request_spec_decode_metrics"] == "summary"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'speculative_config={"model": "a"}\noption.speculative_draft_model=b',
            "option.speculative_draft_model=b contradicts option.speculative_config: both set "
            "speculative_config.model",
        ),
        (
            'speculative_draft_model=b\noption.speculative_config={"model": "a"}',
            "contradicts option.speculative_draft_model: both set speculative_config.model",
        ),
        (
            'structured_outputs_config={"backend": "a"}\noption.guided_decoding_backend=guidance',
            "option.guided_decoding_backend=guidance belongs into option.structured_outputs_config",
        ),
    ],
)
def test_one_argument_cannot_be_two_things(text: str, message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        arguments(f"option.{text}")
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("disable_any_whitespace=true", "xgrammar"),
        ("disable_additional_properties=true", "guidance"),
        ("disable_any_whitespace=true\noption.guided_decoding_backend=guidance", "guidance"),
        ("disable_any_whitespace=false\noption.guided_decoding_backend=outlines", "outlines"),
    ],
)
def test_a_library_is_named_that_has_what_is_asked(text: str, backend: str) -> None:
    made = arguments(f"option.guided_decoding_{text}")["structured_outputs_config"]
    assert made["backend"] == backend


def test_a_library_that_has_not_what_is_asked_is_refused() -> None:
    text = "option.guided_decoding_backend=outlines\noption.guided_decoding_"
    with pytest.raises(OptionError, match=r"backend=xgrammar or guidance"):
        arguments(f"{text}disable_any_whitespace=true")
