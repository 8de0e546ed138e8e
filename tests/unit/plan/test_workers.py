"""Workers on partitions of divided GPUs: what their devices are is in test_strategy."""

from pathlib import Path

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.options import resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan.engine_plan import EnginePlan
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan

PARTITIONS = Hardware(devices=("MIG-c7384736", "MIG-0a9f11f3"))


def plan(text: str) -> EnginePlan:
    options = resolve_options(parse_properties(f"option.model_id=org/m\n{text}"), {}, folder=Path())
    return make_plan(options, {}, PARTITIONS, None)


def test_each_partition_gets_a_worker() -> None:
    groups = plan("option.tensor_parallel_degree=1").parallel.device_groups
    assert groups == (("MIG-c7384736",), ("MIG-0a9f11f3",))


def test_a_model_over_partitions_is_refused() -> None:
    with pytest.raises(PlanError, match="a worker of 2 devices, and the devices are partitions"):
        plan("option.tensor_parallel_degree=2")
