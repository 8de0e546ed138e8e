import sys
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.errors import OptionError
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.engine_plan import Scaling
from lmi_backend.plan.hardware import Hardware
from tests.support.records.plans import CPU, plan_of

FOUR = Hardware(devices=("0", "2", "5", "7"))


def plan(text: str = "", hardware: Hardware = CPU, **more: Any) -> EnginePlan:
    return plan_of(f"option.model_id=org/model\n{text}", hardware, **more)


@pytest.mark.parametrize(
    "line",
    [
        "enable_eplb=true",
        "enable_cumem_allocator=True",
        "return_sampling_mask=true",
        "kda_prefill_backend=fused",
    ],
)
def test_what_vllm_takes_on_gpus_alone_is_refused_on_a_cpu(line: str) -> None:
    text = f"option.rolling_batch=vllm\noption.{line}"
    with pytest.raises(OptionError, match="is refused by vLLM on a CPU; accepted: another value"):
        plan(text)
    assert plan(text, FOUR).config.passthrough
    assert plan(
        text.replace("=true", "=false").replace("=True", "=false").replace("=fused", "=auto")
    )


def test_each_data_parallel_copy_runs_as_many() -> None:
    made = plan("option.data_parallel_size=2\noption.tensor_parallel_degree=1", FOUR)
    assert (made.parallel.workers, made.worker_requests) == (2, 2 * made.limits.max_running)
    assert made.max_requests == 4 * made.limits.max_running


def test_devices_are_those_of_the_machine_or_none() -> None:
    with pytest.raises(OptionError, match=r"visible: none; plan, .* suppose some with --gpus"):
        plan("load_on_devices=0", Hardware())
    assert plan("load_on_devices=-1", FOUR).parallel.device_groups == ((),)


def test_each_device_of_the_list_is_the_first_of_a_worker() -> None:
    eight = Hardware(devices=tuple("abcdefgh"))
    for text, groups in {
        "load_on_devices=gpu6": ["gh"],
        "load_on_devices=1;3\noption.tensor_parallel_degree=1": ["b", "d"],
        "load_on_devices=0\noption.tensor_parallel_degree=4": ["abcd"],
        "load_on_devices=0;4\noption.tensor_parallel_degree=2": ["ab", "ef"],
        "load_on_devices=6;0": ["gh", "ab"],
        "load_on_devices=0;4\noption.tensor_parallel_degree=max": ["abcd", "efgh"],
        "load_on_devices=2\noption.tensor_parallel_degree=2\noption.pipeline_parallel_degree=2": [
            "cdef"
        ],
        "load_on_devices=0;2;4\nmaxWorkers=2\noption.tensor_parallel_degree=1": ["a", "c"],
    }.items():
        assert plan(text, eight).parallel.device_groups == tuple(tuple(each) for each in groups)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "load_on_devices=0;1\noption.tensor_parallel_degree=2",
            "leaves one only 1 of the 4 visible; 2 are",
        ),
        ("load_on_devices=1;2\nminWorkers=3", "are more than load_on_devices names: 2"),
        ("load_on_devices=9", "not visible"),
        ("minWorkers=5\noption.tensor_parallel_degree=1", "do not fit on 4 devices"),
        ("option.pipeline_parallel_degree=8", "needs 8 devices; 4 usable"),
        ("option.rolling_batch=trtllm\noption.task=classify", "is served by vLLM only"),
        ("option.entryPoint=mine.py", "is not a file (looked at"),
        ("option.entryPoint=mine", "a .py file next to the properties, djl_python.deepspeed"),
        ("option.pythonExecutable=/no/such/python", "is not an executable file"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(OptionError) as refusal:
        plan(text, FOUR)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("", "async"),
        ("option.rolling_batch=disable", "async"),
        ("option.rolling_batch=vllm\noption.async_mode=true", "async"),
        ("option.async_mode=false", "legacy"),
        ("option.rolling_batch=vllm", "legacy"),
        ("option.output_formatter=sse", "legacy"),
        ("option.tgi_compat=true", "legacy"),
        ("option.rolling_batch=vllm\noption.lmi_dialect=async", "async"),
    ],
)
def test_the_dialect_follows_from_what_was_written(text: str, dialect: str) -> None:
    assert plan(text).config.clients.dialect == dialect


def test_the_plan_names_an_interpreter_on_the_path(tmp_path: Path) -> None:
    assert plan().launch.python == sys.executable
    python = tmp_path / "my-python"
    python.touch(mode=0o755)
    found = plan("option.pythonExecutable=my-python", environment={"PATH": str(tmp_path)})
    assert found.launch.python == str(python)


def test_the_limits_are_the_options() -> None:
    made = plan(
        "option.model_loading_timeout=1\noption.predict_timeout=2\njob_queue_size=3\n"
        "retry_threshold=4\noption.max_output_size=4096\noption.parallel_loading=true\n"
        "option.env=A=1,B=2"
    )
    limits = (
        made.launch.load_timeout,
        made.limits.request_timeout,
        made.limits.queue_size,
        made.launch.restart_limit,
    )
    assert limits == (1, 2, 3, 4)
    assert (made.limits.max_message_size, made.launch.parallel_loading) == (4096, True)
    assert made.launch.environment == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seed=abc", "seed=abc is not what the engine takes; accepted: a whole number"),
        ("enable_prefix_caching=maybe", "accepted: true or false"),
        ("scheduling_policy=foo", "accepted: fcfs, priority"),
        ("tokens_only=true", "tokens_only=true is set by vllm 0.32.0 itself, which has no flag"),
        ("kv_cache_dtype=foo", "accepted: auto, float16"),
        ('compilation_config={"level": 3}', 'does not know, "level"'),
        ('override_pooler_config={"level": 3}', 'does not know, "level"'),
        ("max_lora_rank=10", "accepted: 1, 8, 16"),
    ],
)
def test_what_the_engine_would_not_take_is_refused_before_the_load(text: str, problem: str) -> None:
    with pytest.raises(OptionError) as refusal:
        plan(f"option.enable_lora=true\noption.{text}")
    assert problem in str(refusal.value)
    assert str(refusal.value).startswith("serving.properties:3: ")


def test_a_handler_of_the_users_is_not_judged_by_its_task(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def handle(inputs): ...\n", encoding="utf-8")
    made = plan("option.rolling_batch=disable\noption.task=classify", folder=tmp_path)
    assert made.engine == "custom"


@pytest.mark.parametrize(
    ("text", "hardware", "workers", "always", "why"),
    [
        ("minWorkers=1\nmaxWorkers=3", FOUR, 3, 1, "1 worker(s) at first, and up to 3"),
        (
            "gpu.minWorkers=2\nmaxWorkers=9",
            FOUR,
            4,
            2,
            "more than 2 requests wait (2 x batch_size)",
        ),
        ("maxWorkers=3", FOUR, 3, 3, ""),
        ("minWorkers=2\nmaxWorkers=2", FOUR, 2, 2, ""),
        ("minWorkers=1", FOUR, 4, 4, "not minWorkers=1: LMI adds and stops workers where max"),
        # Where adapters are served and nobody says how many, one does.
        ("option.enable_lora=true\nminWorkers=2", FOUR, 4, 4, "not minWorkers=2: LMI adds and"),
        (
            "engine=MPI\noption.rolling_batch=lmi-dist\nminWorkers=1\nmaxWorkers=2",
            FOUR,
            2,
            2,
            "2 worker(s) run all the time, not minWorkers=1: in MPI mode LMI starts all",
        ),
        ("maxWorkers=3", Hardware(), 3, 1, "had none for 60 s (max_idle_time)"),
        ("minWorkers=2", Hardware(), 2, 2, ""),
    ],
)
def test_workers_are_scaled_between_their_bounds(
    text: str, hardware: Hardware, workers: int, always: int, why: str
) -> None:
    made = plan(f"{text}\noption.tensor_parallel_degree=1", hardware)
    assert (made.parallel.workers, made.min_workers) == (workers, always)
    reasons = [
        reason for reason in made.reasons if "at first" in reason or "all the time" in reason
    ]
    assert len(reasons) == bool(why)
    assert why in "".join(reasons)


def test_when_they_are_scaled_is_said_by_the_options() -> None:
    text = "maxWorkers=2\nbatch_size=8\noption.max_idle_time=7"
    assert plan(text).scaling == Scaling(min_workers=1, most_waiting=16, max_idle_time=7)
    fixed = plan("max_idle_time=7")
    assert "max_idle_time is ignored: 1 worker(s) run all the time" in fixed.notes
    with pytest.raises(OptionError, match="max_idle_time=0 is out of range"):
        plan("max_idle_time=0")


def test_ranks_on_a_cpu_are_as_many_as_minworkers_says() -> None:
    made = plan("engine=MPI\noption.rolling_batch=lmi-dist\nmaxWorkers=2")
    assert made.parallel.workers == 1
    assert "1 worker(s), not maxWorkers=2: in MPI mode on a CPU minWorkers" in str(made.notes)
