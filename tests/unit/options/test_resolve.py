"""Options of a file and variables, checked; and what vLLM's command line takes for a flag."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from lmi_backend.errors import OptionError
from lmi_backend.options import examine_options
from lmi_backend.options.resolve import argument_of
from lmi_backend.options.signature import NO_FLAG, recorded_signature
from lmi_backend.options.table import common, server, vllm
from tests.support.records.plans import options_of as resolve


@pytest.mark.parametrize(
    ("text", "environment", "value"),
    [
        ("option.predict_timeout=1", {"OPTION_PREDICT_TIMEOUT": "2", "PREDICT_TIMEOUT": "3"}, 1),
        ("", {"OPTION_PREDICT_TIMEOUT": "2", "PREDICT_TIMEOUT": "3"}, 2),
        ("", {"PREDICT_TIMEOUT": "3"}, 3),
        ("option.predict_timeout=1", {"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "4"}, 4),
        ("", {"OPTION_PREDICT_TIMEOUT": ""}, 240),
    ],
)
def test_precedence(text: str, environment: Mapping[str, str], value: int) -> None:
    assert resolve(text, environment)[common.PREDICT_TIMEOUT] == value


def test_unknown_options_are_left_to_the_engine_with_their_place() -> None:
    options = resolve("option.watermark=16", {"OPTION_WATERMARK": "32", "OPTION_SEED": "1"})
    assert {name: s.value for name, s in options.passthrough.items()} == {
        "watermark": "16",
        "seed": "1",
    }
    located = options.locate(OptionError("is bad", option="option.watermark", origin="engine"))
    assert str(located) == "serving.properties:1: option.watermark=16 is bad"


def test_a_fault_in_the_environment_names_the_variable() -> None:
    with pytest.raises(OptionError, match=r"^environment: SERVING_JOB_QUEUE_SIZE=many is not"):
        resolve("", {"SERVING_JOB_QUEUE_SIZE": "many"})


def test_aliases_contradict_within_a_source_only() -> None:
    assert resolve("option.quantize=awq\noption.quantization=awq")[vllm.QUANTIZE] == "awq"
    with pytest.raises(OptionError, match="OPTION_QUANTIZE=awq contradicts OPTION_QUANTIZATION"):
        resolve("", {"OPTION_QUANTIZE": "awq", "OPTION_QUANTIZATION": "gptq"})
    options = resolve("option.quantize=awq", {"OPTION_QUANTIZATION": "gptq"})
    assert options[vllm.QUANTIZE] == "awq"


def test_aliases_that_differ_in_spelling_only_agree() -> None:
    options = resolve("minWorkers=2\ngpu.minWorkers= 02")
    assert options[server.MIN_WORKERS] == 2
    assert options.settings["minWorkers"].origin == "serving.properties:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nmaxWorkers=2", "serving.properties:2: maxWorkers=2 is too few"),
        ("", "default: maxWorkers is too few"),
    ],
)
def test_an_error_found_later_names_what_was_written(text: str, message: str) -> None:
    assert str(resolve(text).error(server.MAX_WORKERS, "is too few")).startswith(message)


def test_a_refused_option_that_asks_for_nothing_is_only_ignored() -> None:
    (found,) = resolve("option.bedrock_compat=false").classifications
    assert found.status.word == "ignored"
    with pytest.raises(OptionError, match="Bedrock"):
        resolve("option.bedrock_compat=true")


def test_secure_mode_is_refused_and_java_ignored() -> None:
    with pytest.raises(OptionError, match="SAGEMAKER_SECURE_MODE=true is not supported"):
        resolve("", {"SAGEMAKER_SECURE_MODE": "true"})
    assert resolve("", {"SAGEMAKER_SECURE_MODE": "false"}).classifications == ()
    (found,) = resolve("", {"JAVA_OPTS": "-Xmx1g"}).classifications
    assert found.status.word == "ignored"


def test_secrets_are_not_shown() -> None:
    options = resolve("option.hf_token=hf_secret\noption.max_num_tokens=5")
    shown = [str(found) for found in options.classifications]
    assert "hf_secret" not in "".join(shown)
    assert "option.max_num_tokens=5" in shown[1]


def test_secrets_in_pairs_are_not_shown_either() -> None:
    (found,) = resolve("option.env=HF_TOKEN=hf_secret,TOKENIZERS_PARALLELISM=false").classifications
    assert found.setting.redacted == "HF_TOKEN=***,TOKENIZERS_PARALLELISM=***"


def test_a_type_that_the_engine_does_not_take_is_refused() -> None:
    with pytest.raises(OptionError, match=r"option.dtype=int8 is not supported: vLLM takes none"):
        resolve("option.dtype=int8")
    assert resolve("option.rolling_batch=disable\noption.dtype=int8")[common.DTYPE] == "int8"


def test_vllms_name_for_the_model_is_the_models() -> None:
    notebook = {"OPTION_MODEL": "org/a", "HF_MODEL_ID": "org/b"}
    assert resolve("", notebook)[common.MODEL_ID] == "org/a"
    assert resolve("option.model=org/c", notebook)[common.MODEL_ID] == "org/c"
    with pytest.raises(OptionError, match=r"contradicts option.model_id=org/a"):
        resolve("option.model_id=org/a\noption.model=org/b")


def test_an_engine_that_is_not_served_is_one_refusal(tmp_path: Path) -> None:
    text = "engine=PyTorch\noption.mapLocation=true\noption.modelName=x\ntranslator=y\n"
    (tmp_path / "serving.properties").write_text(text, encoding="utf-8")
    options, errors = examine_options(tmp_path, {})
    (only,) = map(str, errors)
    words = [found.status.word for found in options.classifications]
    assert words == ["refused", "ignored", "ignored", "ignored"]
    assert only.startswith("serving.properties:1: engine=PyTorch is an engine that is not served")
    assert "option.rolling_batch names the library" in only


@pytest.mark.parametrize("environment", [{"HF_TASK": "image-text-to-text"}, {"OPTION_TASK": "x"}])
def test_a_task_that_lmi_does_not_know_is_left_to_the_model(environment: Mapping[str, str]) -> None:
    options = resolve("", environment)
    assert options[common.TASK] == "auto"
    (found,) = options.classifications
    assert (found.status.word, "LMI knows no such task" in found.status.detail) == ("ignored", True)


@pytest.mark.parametrize(("value", "message"), [("2", "says the same"), ("4", "wins")])
def test_a_variable_that_says_what_the_file_says_is_no_difference(value: str, message: str) -> None:
    options = resolve("option.tensor_parallel_degree=2", {"TENSOR_PARALLEL_DEGREE": value})
    expected = f"option.tensor_parallel_degree (serving.properties:1) {message}"
    assert options.classifications[-1].status.detail == expected


def test_what_lmi_leaves_is_left_and_blanks_say_nothing(tmp_path: Path) -> None:
    text = "fail_fast=true\noption.revision=\nmodel_loading_timeout=9\noption.seed=3 \n"
    (tmp_path / "serving.properties").write_text(text + "option.enable_thinking=true\n", "utf-8")
    options, errors = examine_options(tmp_path, {"HF_MODEL_ID": "org/m ", "OPTION_DTYPE": "fp16 "})
    statuses = {found.setting.name: found.status for found in options.classifications}
    assert not errors
    assert {name for name, status in statuses.items() if status.word == "ignored"} == {
        "fail_fast", "option.revision", "model_loading_timeout", "option.enable_thinking"
    }  # fmt: skip
    assert (
        "LMI reads it as option.model_loading_timeout" in statuses["model_loading_timeout"].detail
    )
    assert options.passthrough["seed"].value == "3"
    assert (options[common.MODEL_ID], options[common.DTYPE]) == ("org/m", "float16")


RECORD = recorded_signature("vllm")
assert RECORD
FLAGS = [name for name, each in RECORD.arguments.items() if each.flag != NO_FLAG]


def test_a_whole_name_is_itself() -> None:
    assert [name for name in FLAGS if argument_of(name, RECORD) != name] == []


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("kv_cache_memory", "kv_cache_memory_bytes"),
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
        ("option.speculative_config.method=mtp", 'as option.speculative_config={"method": "mtp"}'),
        ("option.kernel_config.a.b=1", 'one JSON text, as option.kernel_config={"a": {"b": 1}}'),
        ("option.default_chat_template_kwargs.a=1", 'as option.default_chat_template_kwargs={"a"'),
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
