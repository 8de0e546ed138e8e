"""Several models on one machine: who gets which devices, and who is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.options import LmiOptions, resolve_options
from lmi_backend.options.properties import parse_properties
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.allocations import Allocation
from lmi_backend.plan.gpus import Gpu
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.planner import make_plan
from lmi_backend.plan.together import plan_together
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.units import GIB
from tests.unit.plan.test_strategy import LLAMA_70B, TWELVE_HEADS

ONE = "option.tensor_parallel_degree=1"
MAX = "option.tensor_parallel_degree=max"


def machine(count: int, **fields: object) -> Hardware:
    names = tuple(map(str, range(count)))
    return Hardware(devices=names, device_memory=80 * GIB, **fields)  # type: ignore[arg-type]


def options(text: str) -> LmiOptions:
    lines = parse_properties(f"option.model_id=org/m\n{text}")
    return resolve_options(lines, {}, folder=Path("/models/m"))


def together(
    hardware: Hardware, facts: ModelFacts = TWELVE_HEADS, **texts: str
) -> dict[str, list[str] | str]:
    """Return the devices of each model's workers, or why it is refused."""

    def plan(read: LmiOptions, left: Hardware) -> EnginePlan:
        return make_plan(read, {"PATH": "/bin"}, left, facts)

    made = plan_together({name: options(text) for name, text in texts.items()}, hardware, plan)
    assert list(made) == list(texts)
    return {name: _groups(each) for name, each in made.items()}


def _groups(made: EnginePlan | ConfigurationError) -> list[str] | str:
    if isinstance(made, ConfigurationError):
        return str(made)
    return ["".join(group) for group in made.parallel.device_groups]


@pytest.mark.parametrize(
    ("gpus", "texts", "groups"),
    [
        # Nobody says how many: evenly, and the last gets what cannot be divided.
        (4, {"a": "", "b": ""}, {"a": ["0", "1"], "b": ["2", "3"]}),
        (5, {"a": "", "b": ""}, {"a": ["0", "1"], "b": ["2", "3", "4"]}),
        (2, {"a": "", "b": MAX}, {"a": ["0"], "b": ["1"]}),
        # Who says precisely what it wants comes first, wherever it stands.
        (4, {"a": "", "b": "load_on_devices=0\n" + ONE}, {"a": ["1", "2", "3"], "b": ["0"]}),
        (4, {"a": "", "b": "maxWorkers=1"}, {"a": ["1", "2", "3"], "b": ["0"]}),
        (4, {"a": "minWorkers=3", "b": ""}, {"a": ["0", "1", "2"], "b": ["3"]}),
        # Shares of a device.
        (
            1,
            {"a": "option.gpu_memory_utilization=0.4", "b": "option.gpu_memory_utilization=0.4"},
            {"a": ["0"], "b": ["0"]},
        ),
        # What is no engine's takes what it says.
        (1, {"a": "", "b": "option.rolling_batch=echo"}, {"a": ["0"], "b": ["0"]}),
    ],
)
def test_models_share_the_devices(
    gpus: int, texts: dict[str, str], groups: dict[str, list[str]]
) -> None:
    assert together(machine(gpus), **texts) == groups


@pytest.mark.parametrize(
    ("gpus", "texts", "refused", "problem"),
    [
        (1, {"a": "", "b": ""}, "b", "no device of 1 has enough memory left; model a holds 92%"),
        (2, {"a": MAX, "b": MAX}, "b", "model a holds 92% of GPU 0, 1"),
        (4, {"a": MAX + "\nmaxWorkers=1", "b": ""}, "b", "model a holds 92% of GPU 0, 1, 2, 3"),
        (
            4,
            {"a": "option.tensor_parallel_degree=2\nmaxWorkers=1", "b": MAX[:-3] + "4"},
            "b",
            "needs 4 devices (4 x 1); 2 usable; model a holds 92% of GPU 0, 1; 92% of a GPU is",
        ),
        (
            4,
            {"a": "load_on_devices=0\n" + ONE, "b": "load_on_devices=0;1\n" + ONE},
            "b",
            "load_on_devices=0;1 needs GPU 0, which has too little memory left; model a holds",
        ),
        (
            1,
            {
                "a": "option.gpu_memory_utilization=0.5",
                "b": "option.gpu_memory_utilization=0.4",
                "c": "option.gpu_memory_utilization=0.2",
            },
            "c",
            "model a holds 50% of GPU 0; model b holds 40% of GPU 0; 20% of a GPU is wanted",
        ),
    ],
)
def test_who_finds_too_little_is_refused_and_all_are_named(
    gpus: int, texts: dict[str, str], refused: str, problem: str
) -> None:
    found = together(machine(gpus), **texts)
    assert [name for name, outcome in found.items() if isinstance(outcome, str)] == [refused]
    assert problem in found[refused]
    assert "accepted: fewer devices for one of them (maxWorkers, load" in found[refused]


def test_what_is_wrong_without_others_is_said_as_it_is() -> None:
    found = together(machine(4), a=MAX + "\nmaxWorkers=1", b="option.tensor_parallel_degree=5")
    assert "attention heads" not in str(found["a"])
    assert "model a" not in str(found["b"])


def test_a_model_of_two_devices_finds_them_among_seven() -> None:
    """An odd number left is no reason for stages."""
    held = (Allocation(model="small", shares={"3": 0.92}),)
    assert together(machine(8, allocations=held), LLAMA_70B, a="")["a"] == ["01", "24", "56"]


def test_a_device_is_itself_under_another_mask() -> None:
    gpus = (Gpu(name="0", uuid="GPU-b"), Gpu(name="1", uuid="GPU-c"))
    held = (Allocation(model="other", shares={"GPU-c": 0.5, "GPU-a": 0.92}),)
    assert together(machine(2, gpus=gpus, allocations=held), a="")["a"] == ["0"]


def test_a_handler_holds_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def handle(inputs): ...\n", encoding="utf-8")
    lines = parse_properties("gpu.required_memory_mb=40960\nengine=Python")
    resolved = resolve_options(lines, {}, folder=tmp_path)
    made = make_plan(resolved, {"PATH": "/bin"}, machine(1), None)
    assert (made.engine, made.parallel.device_share) == ("custom", 0.5)


def test_models_on_the_cpu_share_the_hosts_memory() -> None:
    facts = replace(LLAMA_70B, weight_bytes=10 * GIB, max_position_embeddings=2048)
    text = "option.rolling_batch=disable\noption.max_rolling_batch_size=256"

    def plan(read: LmiOptions, left: Hardware) -> EnginePlan:
        return make_plan(read, {"PATH": "/bin"}, left, facts)

    models = {name: options(text) for name in "abc"}
    made = plan_together(models, Hardware(host_memory=30 * GIB), plan)
    caches = [
        each.memory.kv_cache / GIB
        for each in made.values()
        if isinstance(each, EnginePlan) and each.memory
    ]
    # A quarter of 20 GiB; then a quarter of 15 - 10.
    assert caches == [5.0, 1.25]
    assert "host's memory: 1 x 10.0 GiB" in str(made["c"])
