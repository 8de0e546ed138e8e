"""What vLLM's command line takes for a flag, the options take too."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from lmi_backend.errors import OptionError
from lmi_backend.options import LmiOptions, resolve_options
from lmi_backend.options.abbreviations import argument_of
from lmi_backend.options.properties import parse_properties
from lmi_backend.options.signature import NO_FLAG, recorded_signature

RECORD = recorded_signature("vllm")
assert RECORD
FLAGS = [name for name, each in RECORD.arguments.items() if each.flag != NO_FLAG]


def resolve(text: str, environment: Mapping[str, str] | None = None) -> LmiOptions:
    return resolve_options(parse_properties(text), environment or {}, folder=Path("/models/m"))


def test_a_whole_name_is_itself() -> None:
    assert [name for name in FLAGS if argument_of(name, RECORD) != name] == []


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("kv_cache_memory", "kv_cache_memory_bytes"),
        ("max_num_batched", "max_num_batched_tokens"),
        ("gpu_memory_util", "gpu_memory_utilization"),
        ("device_memory_utilization", "gpu_memory_utilization"),
        ("device_memory_util", "gpu_memory_utilization"),
        ("middlew", "middleware"),
        ("no_such", "no_such"),
        ("utilization", "utilization"),
    ],
)
def test_a_name_is_what_the_command_line_makes_of_it(name: str, argument: str) -> None:
    assert argument_of(name, RECORD) == argument


def test_it_sets_the_option_or_the_argument() -> None:
    text = "option.rolling_batch=vllm\noption.max_num_seq=7\n"
    options = resolve(
        text, {"SM_VLLM_KV_CACHE_MEMORY": "7117934592", "OPTION_ENABLE_PROMPT_EMB": "true"}
    )
    assert options.values["option.kv_cache_memory_bytes"] == 7117934592
    assert options.values["option.max_rolling_batch_size"] == 7
    assert options.passthrough["enable_prompt_embeds"].value == "true"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("option.reasoning_pars=x", "could match --reasoning-parser, --reasoning-parser-plugin"),
        (
            "option.speculative_config.method=mtp",
            'one JSON text, as option.speculative_config={"method": "mtp"}',
        ),
        (
            "option.kernel_config.a.b=1",
            'one JSON text, as option.kernel_config={"a": {"b": 1}}',
        ),
        ("option.enable_prompt_emb=1\noption.enable_prompt_embe=0", "contradicts option.enable_pr"),
    ],
)
def test_what_is_not_clear_is_refused(line: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem.replace("{", r"\{")):
        resolve(f"option.rolling_batch=vllm\n{line}\n")


def test_a_dotted_variable_is_named_as_it_is_written() -> None:
    with pytest.raises(OptionError, match=r'as SM_VLLM_SPECULATIVE_CONFIG=\{"method": "mtp"\}'):
        resolve("option.rolling_batch=vllm\n", {"SM_VLLM_SPECULATIVE_CONFIG.METHOD": "mtp"})


def test_another_engine_completes_nothing() -> None:
    options = resolve("option.rolling_batch=trtllm\noption.max_num_seq=7\n")
    assert list(options.passthrough) == ["max_num_seq"]
