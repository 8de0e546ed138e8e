"""Workers on partitions of divided GPUs, and spares: what their devices are is in test_strategy."""

from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.plan.engine_plan import Parallel
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.workers import loaded_bytes
from lmi_backend.printable import GIB
from tests.support.records.facts import LLAMA_3_8B
from tests.support.records.plans import plan_of

PARTITIONS = Hardware(devices=("MIG-c7384736", "MIG-0a9f11f3"))
MODEL = "option.model_id=org/m\n"


def test_each_partition_gets_a_worker_and_no_worker_two() -> None:
    made = plan_of(f"{MODEL}option.tensor_parallel_degree=1", PARTITIONS)
    assert made.parallel.device_groups == (("MIG-c7384736",), ("MIG-0a9f11f3",))
    with pytest.raises(PlanError, match="a worker of 2 devices, and the devices are partitions"):
        plan_of(f"{MODEL}option.tensor_parallel_degree=2", PARTITIONS)


@pytest.mark.parametrize(
    ("text", "gpus", "host", "expected"),
    [
        ("", 4, 64, True),
        # 16 GB of weights each.
        ("", 4, 59, False),
        ("option.parallel_loading=true", 4, 1, True),
        ("option.parallel_loading=false", 4, 64, False),
        ("", 1, 64, False),
        ("minWorkers=2\noption.env=VLLM_CPU_KVCACHE_SPACE=20", 0, 64, False),
    ],
)
def test_workers_load_side_by_side_where_the_host_carries_it(
    text: str, gpus: int, host: int, expected: bool
) -> None:
    names = tuple(map(str, range(gpus)))
    hardware = Hardware(devices=names, device_memory=80 * GIB, host_memory=host * GIB)
    made = plan_of(MODEL + text, hardware, LLAMA_3_8B)
    assert made.launch.parallel_loading is expected
    assert any("side by side" in each for each in made.reasons) is (expected and not text)


MEMORY: Any = SimpleNamespace(weights=5, kv_cache=2)
FULL: Any = SimpleNamespace(weights=5, kv_cache=-1)


@pytest.mark.parametrize(
    ("memory", "copies", "passed", "parallel", "loaded"),
    [
        (MEMORY, 1, (), Parallel(), 7),
        (FULL, 1, (), Parallel(), 5),
        (MEMORY, 1, ("seed",), Parallel(tensor_parallel_degree=2), 14),
        (MEMORY, 1, (), Parallel(device_groups=(("0",),)), 0),
        (None, 1, (), Parallel(), 0),
        (MEMORY, 2, (), Parallel(), 0),
        (MEMORY, 1, ("kv_transfer_config",), Parallel(), 0),
        (MEMORY, 1, ("kv_events_config",), Parallel(), 0),
    ],
)
def test_it_takes_no_device_and_no_port(
    memory: Any, copies: int, passed: tuple[str, ...], parallel: Parallel, loaded: int
) -> None:
    assert loaded_bytes(memory, copies, passed, parallel) == loaded
