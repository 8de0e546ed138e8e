from collections.abc import Mapping
from pathlib import Path

import pytest

from lmi_backend.errors import OptionError, PlanError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan import EnginePlan, make_plan
from lmi_backend.plan.hardware import visible_devices

CPU = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/bin"}
FOUR = {"CUDA_VISIBLE_DEVICES": "0,2,5,7", "PATH": "/bin"}


def plan(
    text: str, environment: Mapping[str, str] = CPU, folder: Path = Path("/models/m")
) -> EnginePlan:
    lines = parse_properties(f"option.model_id=org/model\n{text}")
    return make_plan(resolve_options(lines, {}, folder=folder), environment)


def test_on_a_cpu_max_is_one_worker_of_one() -> None:
    made = plan("option.tensor_parallel_degree=max")
    assert (made.tensor_parallel_degree, made.workers, made.device_groups) == (1, 1, ((),))
    assert made.engine_arguments["tensor_parallel_size"] == 1


def test_max_takes_all_devices_for_one_worker() -> None:
    made = plan("", FOUR)
    assert made.tensor_parallel_degree == 4
    assert made.device_groups == (("0", "2", "5", "7"),)


def test_a_degree_cuts_the_devices_into_workers() -> None:
    made = plan("option.tensor_parallel_degree=2", FOUR)
    assert made.device_groups == (("0", "2"), ("5", "7"))
    assert made.max_requests == 2 * made.max_running


def test_workers_are_capped_and_counted() -> None:
    assert plan("option.tensor_parallel_degree=1\nmaxWorkers=3", FOUR).workers == 3
    assert plan("minWorkers=2").workers == 2


def test_pipeline_stages_take_devices_too() -> None:
    made = plan("option.pipeline_parallel_degree=2", FOUR)
    assert (made.tensor_parallel_degree, made.pipeline_parallel_degree) == (2, 2)
    assert made.world_size == 4


def test_lora_is_served_by_one_worker() -> None:
    made = plan("option.tensor_parallel_degree=1\noption.enable_lora=true", FOUR)
    assert made.workers == 1
    assert any("LoRA" in reason for reason in made.reasons)
    assert made.engine_arguments["max_loras"] == 4


def test_devices_can_be_chosen() -> None:
    text = "load_on_devices=1;3\noption.tensor_parallel_degree=1"
    assert plan(text, FOUR).device_groups == (("2",), ("7",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("option.tensor_parallel_degree=8", "needs 8 devices; 4 visible"),
        ("load_on_devices=9", "not visible"),
        ("minWorkers=5\noption.tensor_parallel_degree=1", "do not fit on 4 devices"),
        ("option.mpi_mode=true", "MPI ranks, which are not served yet"),
        ("engine=MPI", "engine=MPI"),
        ("option.rolling_batch=trtllm", "not served yet; served: auto, disable, echo"),
        ("option.task=classify", "option.task=classify is not served yet"),
        ("option.entryPoint=mine.py", "built-in handlers are djl_python.huggingface"),
        ("option.pythonExecutable=/no/such/python", "is not an executable file"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        plan(text, FOUR)
    assert message in str(refusal.value)


@pytest.mark.parametrize("model_id", ["s3://bucket/model", "djl://x", "/no/such/folder"])
def test_a_model_that_cannot_be_had_is_refused(model_id: str) -> None:
    with pytest.raises(OptionError, match=r"option\.model_id="):
        plan(f"option.model_id={model_id}")


def test_a_model_beside_the_properties_needs_no_model_id(tmp_path: Path) -> None:
    options = resolve_options([], {}, folder=tmp_path)
    with pytest.raises(PlanError, match="no model"):
        make_plan(options, CPU)
    (tmp_path / "config.json").write_text("{}")
    assert make_plan(options, CPU).model == str(tmp_path)


def test_relative_model_ids_start_at_the_properties(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    assert plan("option.model_id=weights", folder=tmp_path).model == str(tmp_path / "weights")


def test_a_custom_handler_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    with pytest.raises(PlanError, match="custom handlers"):
        plan("", folder=tmp_path)


def test_adapters_are_found_by_folder(tmp_path: Path) -> None:
    adapter = tmp_path / "adapters" / "french"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text("{}")
    assert plan("", folder=tmp_path).adapters == {}
    made = plan("option.enable_lora=true", folder=tmp_path)
    assert made.adapters == {"french": str(adapter)}


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("", "async"),
        ("option.rolling_batch=disable", "async"),
        ("option.rolling_batch=vllm", "legacy"),
        ("option.output_formatter=sse", "legacy"),
        ("option.tgi_compat=true", "legacy"),
        ("option.rolling_batch=vllm\noption.lmi_dialect=async", "async"),
    ],
)
def test_the_dialect_follows_from_what_was_written(text: str, dialect: str) -> None:
    assert plan(text).dialect == dialect


def test_options_become_the_engines_arguments() -> None:
    made = plan("option.quantize=awq\noption.max_rolling_batch_size=8\noption.block_size=16")
    assert made.engine_arguments["quantization"] == "awq"
    assert made.engine_arguments["max_num_seqs"] == 8
    assert "dtype" not in made.engine_arguments
    assert made.passthrough == {"block_size": "16"}


@pytest.mark.parametrize(
    ("mask", "names"),
    [("", []), ("-1", []), ("0", ["0"]), ("2, 0", ["2", "0"]), ("0,-1,1", ["0"])],
)
def test_the_mask_decides_what_is_visible(mask: str, names: list[str]) -> None:
    assert visible_devices({"CUDA_VISIBLE_DEVICES": mask}) == names


def test_without_a_mask_device_nodes_count(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_devices({}, nodes=tmp_path) == ["2", "10"]
