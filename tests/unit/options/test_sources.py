from collections.abc import Mapping
from pathlib import Path

import pytest

from lmi_backend.options import LmiOptions, resolve_options
from lmi_backend.options.option import Status
from lmi_backend.options.setting import WrittenSetting
from lmi_backend.options.sources import ORIGIN, bare, overriding, prefixed
from lmi_backend.options.table import common, server, vllm


def resolve(environment: Mapping[str, str]) -> LmiOptions:
    return resolve_options([], environment, folder=Path("/models/m"))


@pytest.mark.parametrize(
    ("variable", "value", "option", "read"),
    [
        ("OPTION_MODEL_ID", "m", common.MODEL_ID, "m"),
        ("HF_MODEL_ID", "m", common.MODEL_ID, "m"),
        ("OPTION_ENTRYPOINT", "djl_python.deepspeed", common.ENTRY_POINT, "djl_python.deepspeed"),
        ("OPTION_entryPoint", "djl_python.deepspeed", common.ENTRY_POINT, "djl_python.deepspeed"),
        ("OPTION_pythonExecutable", "p", common.PYTHON_EXECUTABLE, "p"),
        ("PYTHON_EXECUTABLE", "p", common.PYTHON_EXECUTABLE, "p"),
        ("OPTION_ENGINE", "mpi", common.ENGINE, "MPI"),
        ("SERVING_JOB_QUEUE_SIZE", "7", server.JOB_QUEUE_SIZE, 7),
        ("SERVING_MIN_WORKERS", "2", server.MIN_WORKERS, 2),
        ("SAGEMAKER_NUM_MODEL_WORKERS", "2", server.MIN_WORKERS, 2),
        ("SAGEMAKER_NUM_MODEL_WORKERS", "2", server.MAX_WORKERS, 2),
        ("TENSOR_PARALLEL_DEGREE", "2", common.TENSOR_PARALLEL_DEGREE, 2),
        ("SM_NUM_GPUS", "2", common.TENSOR_PARALLEL_DEGREE, 2),
        ("OPTION_MAX_MODEL_LEN", "128", vllm.MAX_MODEL_LEN, 128),
        ("OPTION_MAX_NUM_SEQS", "8", common.MAX_ROLLING_BATCH_SIZE, 8),
        ("ENABLE_CUDA_GRAPHS", "true", vllm.ENFORCE_EAGER, False),
        ("ENABLE_CUDA_GRAPHS", "false", vllm.ENFORCE_EAGER, True),
        ("DJL_CLUSTER_SIZE", "2", common.CLUSTER_SIZE, 2),
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
        ("max_model_len", "LMI reads OPTION_MAX_MODEL_LEN"),
        ("DTYPE", "LMI reads OPTION_DTYPE"),
        ("JOB_QUEUE_SIZE", "LMI reads SERVING_JOB_QUEUE_SIZE"),
        ("KV_CACHE_MEMORY_BYTES", "LMI reads OPTION_KV_CACHE_MEMORY_BYTES"),
        ("MAX_LENGTH", "LMI reads OPTION_MAX_MODEL_LEN"),
        ("MAX_INPUT_TOKENS", "LMI reads OPTION_MAX_MODEL_LEN"),
        ("NUM_SHARD", "LMI reads OPTION_TENSOR_PARALLEL_DEGREE"),
        ("SHARDED", "LMI reads OPTION_TENSOR_PARALLEL_DEGREE"),
        ("MAX_BATCH_TOTAL_TOKENS", "it is an option of TGI that has no counterpart"),
        ("NEURON_SEQUENCE_PARALLEL", "it is no variable of vllm, on which this model runs"),
        ("OPTIONS_DTYPE", "LMI has no such variable; did you mean option.dtype?"),
        ("option_dtype", "LMI has no such variable; did you mean option.dtype?"),
        ("SAGEMAKER_NO_SUCH", "LMI has no such variable"),
        ("BRANCH", ""),
        ("seed", ""),
        ("PATH", ""),
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
