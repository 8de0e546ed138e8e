"""Which variables count as options, those of AWS's vLLM images among them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from lmi_backend.errors import OptionError
from lmi_backend.options import LmiOptions, examine_options
from lmi_backend.options.classification import status_of
from lmi_backend.options.resolve import argument_of
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.sources import ORIGIN, bare, flags, overriding, prefixed
from lmi_backend.options.spec import Status, WrittenSetting
from lmi_backend.options.table import common, server, vllm
from lmi_backend.options.table.variables import SERVER_FLAGS
from tests.support.records.plans import options_of


def resolve(environment: Mapping[str, str], text: str = "") -> LmiOptions:
    return options_of(text, environment)


@pytest.mark.parametrize(
    ("variable", "value", "option", "read"),
    [
        ("OPTION_MODEL_ID", "m", common.MODEL_ID, "m"),
        ("HF_MODEL_ID", "m", common.MODEL_ID, "m"),
        ("OPTION_ENTRYPOINT", "djl_python.deepspeed", common.ENTRY_POINT, "djl_python.deepspeed"),
        ("OPTION_entryPoint", "djl_python.deepspeed", common.ENTRY_POINT, "djl_python.deepspeed"),
        ("OPTION_pythonExecutable", "p", common.PYTHON_EXECUTABLE, "p"),
        ("OPTION_ENGINE", "mpi", common.ENGINE, "MPI"),
        ("SERVING_JOB_QUEUE_SIZE", "7", server.JOB_QUEUE_SIZE, 7),
        ("SAGEMAKER_NUM_MODEL_WORKERS", "2", server.MIN_WORKERS, 2),
        ("SAGEMAKER_NUM_MODEL_WORKERS", "2", server.MAX_WORKERS, 2),
        ("SM_NUM_GPUS", "2", common.TENSOR_PARALLEL_DEGREE, 2),
        ("OPTION_MAX_NUM_SEQS", "8", common.MAX_ROLLING_BATCH_SIZE, 8),
        ("ENABLE_CUDA_GRAPHS", "true", vllm.ENFORCE_EAGER, False),
        ("CUDA_MEMORY_FRACTION", "0.5", vllm.GPU_MEMORY_UTILIZATION, 0.5),
    ],
)
def test_every_form_of_a_variable_is_read(
    variable: str, value: str, option: object, read: object
) -> None:
    assert resolve({variable: value})[option] == read  # type: ignore[index]


def test_other_variables_are_left_alone() -> None:
    options = resolve({"OPTION_": "x", "SERVING_FEATURES": "vllm", "PATH": "/bin", "OPTION": "1"})
    assert options.values == {}
    assert options.passthrough == {}


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("OPTION_BLOCK_SIZE", "option.block_size"),
        ("OPTION_hfOverrides", "option.hfOverrides"),
        ("OPTION_fp8", "option.fp8"),
    ],
)
def test_upper_case_is_lowered_and_any_other_is_kept(variable: str, key: str) -> None:
    assert list(prefixed({variable: "1"})) == [(key, WrittenSetting(variable, "1", ORIGIN))]


def test_the_first_bare_variable_counts_and_an_empty_one_does_not() -> None:
    both = {"TENSOR_PARALLEL_DEGREE": "2", "SM_NUM_GPUS": "4"}
    option = common.TENSOR_PARALLEL_DEGREE
    weaker = WrittenSetting("SM_NUM_GPUS", "4", ORIGIN)
    assert list(bare(both, option)) == [
        WrittenSetting("TENSOR_PARALLEL_DEGREE", "2", ORIGIN),
        weaker,
    ]
    assert list(bare(both | {"TENSOR_PARALLEL_DEGREE": ""}, option)) == [weaker]
    assert list(bare({}, option)) == []
    statuses = {each.setting.name: each.status for each in resolve(both).classifications}
    assert statuses["SM_NUM_GPUS"] == Status("ignored", "TENSOR_PARALLEL_DEGREE (environment) wins")


@pytest.mark.parametrize(
    ("variable", "detail"),
    [
        ("MAX_ROLLING_BATCH_SIZE", "LMI reads OPTION_MAX_ROLLING_BATCH_SIZE"),
        ("JOB_QUEUE_SIZE", "LMI reads SERVING_JOB_QUEUE_SIZE"),
        ("KV_CACHE_MEMORY_BYTES", "LMI reads OPTION_KV_CACHE_MEMORY_BYTES"),
        ("MAX_LENGTH", "LMI reads OPTION_MAX_MODEL_LEN"),
        ("LOAD_IN_8BIT", "LMI reads OPTION_LOAD_IN_8BIT"),
        ("NUM_SHARD", "LMI reads OPTION_TENSOR_PARALLEL_DEGREE"),
        ("ENTRY_POINT", "LMI reads OPTION_ENTRYPOINT"),
        ("MAX_BEST_OF", "nothing reads this variable of Text Generation Inference"),
        ("NEURON_SEQUENCE_PARALLEL", "it is not a variable of vllm, on which this model runs"),
        ("option_dtype", "LMI has no such variable; did you mean option.dtype?"),
        ("SAGEMAKER_NO_SUCH", "LMI has no such variable"),
        ("seed", ""),
        ("KUBERNETES_SERVICE_HOST", ""),
    ],
)
def test_a_variable_that_only_looks_like_an_option_is_named(variable: str, detail: str) -> None:
    found = [each.status for each in resolve({variable: "2"}).classifications]
    assert found == ([Status("ignored", detail)] if detail else [])


def test_only_named_sagemaker_variables_override() -> None:
    environment = {"SAGEMAKER_STARTUP_TIMEOUT": "9", "SAGEMAKER_REGION": "x", "OPTION_DTYPE": "y"}
    assert list(overriding(environment, Path("/models/m"))) == [
        ("option.model_loading_timeout", WrittenSetting("SAGEMAKER_STARTUP_TIMEOUT", "9", ORIGIN))
    ]


def test_a_load_list_names_engine_and_devices_of_its_folder() -> None:
    environment = {"SERVING_LOAD_MODELS": "a::MPI:0;1=/models/m, b::Python=/models/other"}
    assert list(overriding(environment, Path("/models/m"))) == [
        ("engine", WrittenSetting("SERVING_LOAD_MODELS", "MPI", ORIGIN)),
        ("load_on_devices", WrittenSetting("SERVING_LOAD_MODELS", "0;1", ORIGIN)),
    ]
    assert resolve(environment)[common.ENGINE] == "MPI"
    assert list(overriding(environment, Path("/models/none"))) == []


def test_each_variable_is_a_flag_of_vllm() -> None:
    options = resolve(
        {
            "SM_VLLM_MODEL": "org/m",
            "SM_VLLM_TENSOR_PARALLEL_SIZE": "2",
            "SM_VLLM_MAX_MODEL_LEN": "32K",
            "SM_VLLM_DTYPE": "half",
            "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "",
            "SM_VLLM_SEED": "3",
            "SM_VLLM_SHUTDOWN_TIMEOUT": "8",
            "SM_VLLM_NO_ENABLE_PREFIX_CACHING": "",
        }
    )
    assert options[common.MODEL_ID] == "org/m"
    assert options[common.TENSOR_PARALLEL_DEGREE] == 2
    assert options[vllm.MAX_MODEL_LEN] == 32 << 10
    assert options[vllm.DTYPE] == "float16"
    assert options[vllm.ENABLE_AUTO_TOOL_CHOICE]
    assert options[server.SHUTDOWN_TIMEOUT] == 8
    assert options.passthrough["seed"].name == "SM_VLLM_SEED"
    assert options.passthrough["enable_prefix_caching"].value == "false"


def test_they_are_weaker_than_lmis_and_stronger_than_bare_ones() -> None:
    both = {"SM_VLLM_MODEL": "org/image", "HF_MODEL_ID": "org/bare"}
    assert resolve(both)[common.MODEL_ID] == "org/image"
    assert resolve({**both, "OPTION_MODEL_ID": "org/lmi"})[common.MODEL_ID] == "org/lmi"
    assert resolve(both, "option.model_id=org/file")[common.MODEL_ID] == "org/file"


def test_what_is_no_option_of_the_image_is_left() -> None:
    assert not list(flags({"SM_VLLM_": "1", "SM_NUM_GPUS": "2", "SM_VLLM_PORT": "8080"}))


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("SM_SGLANG_MODEL_PATH", "SGLang is not served here"),
        ("SM_VLLM_MAX_MODEL_LEN", "is not a number of tokens"),
    ],
)
def test_what_cannot_be_had_is_refused_by_its_name(variable: str, problem: str) -> None:
    with pytest.raises(OptionError, match=f"environment: {variable}=.*{problem}"):
        resolve({variable: "some-value"})


@pytest.mark.parametrize("name", sorted(SERVER_FLAGS))
def test_a_flag_of_vllms_server_has_one_outcome_however_it_is_written(name: str) -> None:
    status = SERVER_FLAGS[name]
    known = recorded_signature("vllm")
    assert known is not None
    assert argument_of(name, known) == name
    assert status_of(f"option.{name}", "vllm", known).word == status.word
    written = f"SM_VLLM_{name.upper()}"
    spellings = {written: "x", "OPTION_ENV": f"A=1,{written}=x"}
    if status.word == "refused":
        spellings[written.removeprefix("SM_")] = "x"
    for variable, value in spellings.items():
        options, errors = examine_options(Path("/models/m"), {variable: value})
        assert [status.detail in str(each) for each in errors] == [True] * len(errors)
        assert bool(errors) == (status.word == "refused"), variable
        words = {each.status.word for each in options.classifications}
        assert bool(errors) or status.word in words
        assert words <= {status.word, "mapped"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "true"),
        ("True ", "true"),
        (" 8 ", "8"),
        ("[4096]", "4096"),
        ('["a"]', "a"),
        ('["a,b"]', '["a,b"]'),
        ("[1, 2, 4]", "[1, 2, 4]"),
        ('["a", true, {"b": 1}]', '["a", true, {"b": 1}]'),
        ('[{"name": "a", "path": "/a"}]', '{"name": "a", "path": "/a"}'),
        ('{"a":1} {"b":2}', '[{"a": 1}, {"b": 2}]'),
        ('{"a": {"b": 1},\n "c": 2}', '{"a": {"b": 1},\n "c": 2}'),
        ("{% for m in messages %}{{ m }} {% endfor %}",) * 2,
        ('{"a":1} b',) * 2,
        ("[" * 100_000 + "]",) * 2,
    ],
)
def test_a_value_is_the_words_that_the_image_makes_of_it(value: str, text: str) -> None:
    ((key, setting),) = flags({"SM_VLLM_X": value})
    assert (key, setting.value) == ("option.x", text)


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("SM_VLLM_ENABLE_PREFIX_CACHING", "false", "SM_VLLM_NO_ENABLE_PREFIX_CACHING= turns off"),
        ("SM_VLLM_NO_ENABLE_PREFIX_CACHING", "False ", "leave out a flag whose value is false"),
        ("SM_VLLM_CUSTOM_OPS", "[]", "leave out the flag of an empty list"),
    ],
)
def test_a_flag_that_the_image_leaves_out_is_ignored(
    tmp_path: Path, variable: str, value: str, reason: str
) -> None:
    options, errors = examine_options(tmp_path, {variable: value})
    (found,) = options.classifications
    assert (errors, options.passthrough, options.values) == ([], {}, {})
    assert found.status.word == "ignored"
    assert reason in found.status.detail


def test_adapters_are_named_as_vllms_server_takes_them() -> None:
    for value in (
        '[{"name":"a","path":"/l/a"},{"name":"b","path":"/l/b","base_model_name":"m"}]',
        '{"name":"a","path":"/l/a"} {"name":"b","path":"/l/b"}',
        '["a=/l/a", "b=/l/b"]',
        "a=/l/a,b = /l/b",
    ):
        options = resolve({"SM_VLLM_LORA_MODULES": value, "SM_VLLM_ENABLE_LORA": "true"})
        assert options[vllm.LORA_MODULES] == {"a": "/l/a", "b": "/l/b"}
