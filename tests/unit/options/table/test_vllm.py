"""What vLLM gets in addition to the options that are set."""

from typing import Any

import pytest

from tests.unit.plan.test_planner import plan

DRAFT = "option.speculative_draft_model=org/d"


@pytest.mark.parametrize(
    ("text", "draft"),
    [
        (DRAFT, {"model": "org/d", "num_speculative_tokens": 5}),
        (
            f"{DRAFT}\noption.num_speculative_tokens=3",
            {"model": "org/d", "num_speculative_tokens": 3},
        ),
        (
            "option.speculative_draft_model=[ngram]\noption.ngram_prompt_lookup_max=4",
            {"method": "ngram", "prompt_lookup_max": 4, "num_speculative_tokens": 5},
        ),
        (
            'option.speculative_length=2\noption.speculative_config={"model": "org/d"}',
            {"model": "org/d", "num_speculative_tokens": 2},
        ),
        # In vLLM's own words nothing is added that it would choose.
        ('option.speculative_config={"model": "org/d"}', {"model": "org/d"}),
        (
            'option.speculative_config={"prompt_lookup_max": 4}',
            {"method": "ngram", "prompt_lookup_max": 4},
        ),
        ("", None),
    ],
)
def test_a_draft_has_as_many_tokens_as_lmis_guide_says(
    text: str, draft: dict[str, Any] | None
) -> None:
    made = plan(f"option.rolling_batch=vllm\n{text}")
    assert made.config.arguments.get("speculative_config") == draft


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("option.task=classify", {"runner": "pooling", "convert": "classify"}),
        ("option.convert=embed\noption.task=classify", {"runner": "pooling"}),
        ("option.task=embed", {"runner": "pooling"}),
        ("option.task=text-embedding", {"runner": "pooling"}),
        ("option.task=text-generation", {"runner": "generate"}),
        ("", {}),
        ("option.enable_lora=true", {"enable_lora": True, "max_loras": 4}),
        (
            "option.enable_lora=true\noption.max_loras=2",
            {"enable_lora": True, "max_loras": 2},
        ),
    ],
)
def test_a_task_and_adapters_set_what_they_need(text: str, made: dict[str, Any]) -> None:
    config = plan(f"option.rolling_batch=vllm\n{text}").config
    names = ("runner", "convert", "enable_lora", "max_loras")
    assert {name: config.arguments[name] for name in names if name in config.arguments} == made
    assert config.clients.is_embedding is ("embed" in text.partition("task=")[2])
