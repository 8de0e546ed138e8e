"""Several models on one machine: who gets which devices, and who holds them."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import ConfigurationError
from lmi_backend.options import LmiOptions
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.engine_plan import Launch, Parallel
from lmi_backend.plan.hardware import Allocation, Gpu, Hardware
from lmi_backend.plan.multi_model import Reservations, plan_together
from lmi_backend.plan.planner import make_plan
from lmi_backend.printable import GIB
from lmi_backend.sizing.model_facts import ModelFacts
from tests.support.records.facts import with_fields
from tests.support.records.plans import options_of, plan_of
from tests.support.run.processes import child
from tests.support.run.waiting import HANG_SECONDS
from tests.unit.plan.test_strategy import LLAMA_70B, TWELVE_HEADS

ONE = "option.tensor_parallel_degree=1"
MAX = "option.tensor_parallel_degree=max"


def machine(count: int, **fields: object) -> Hardware:
    names = tuple(map(str, range(count)))
    return Hardware(devices=names, device_memory=80 * GIB, **fields)  # type: ignore[arg-type]


def planned(
    hardware: Hardware, facts: ModelFacts, texts: Mapping[str, str]
) -> dict[str, EnginePlan | ConfigurationError]:
    """Plan the models of these lines side by side."""

    def plan(read: LmiOptions, left: Hardware) -> EnginePlan:
        return make_plan(read, {"PATH": "/bin"}, left, facts)

    options = {name: options_of(f"option.model_id=org/m\n{text}") for name, text in texts.items()}
    return plan_together(options, hardware, plan)


def together(
    hardware: Hardware, facts: ModelFacts = TWELVE_HEADS, **texts: str
) -> dict[str, list[str] | str]:
    """Return the devices of each model's workers, or why it is refused."""
    made = planned(hardware, facts, texts)
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
    text = "gpu.required_memory_mb=40960\nengine=Python"
    made = plan_of(text, machine(1), folder=tmp_path)
    assert (made.engine, made.parallel.device_share) == ("custom", 0.5)


def test_models_on_the_cpu_share_the_hosts_memory() -> None:
    facts = with_fields(LLAMA_70B, total=10 * GIB, max_position_embeddings=2048)
    text = "option.rolling_batch=disable\noption.max_rolling_batch_size=256"
    made = planned(Hardware(host_memory=30 * GIB), facts, dict.fromkeys("abc", text))
    caches = [
        each.memory.kv_cache / GIB
        for each in made.values()
        if isinstance(each, EnginePlan) and each.memory
    ]
    # A quarter of 20 GiB; then a quarter of 15 - 10.
    assert caches == [5.0, 1.25]
    assert "host's memory: 1 x 10.0 GiB" in str(made["c"])


A = Allocation(model="a", shares={"GPU-1": 0.92, "GPU-2": 0.92})
B = Allocation(model="b", shares={"GPU-3": 0.4})
PLAN = EnginePlan(
    engine="vllm",
    config=EngineConfig(model="org/m"),
    launch=Launch(python="python"),
    parallel=Parallel(device_groups=(("0",),), device_share=0.92),
)

_OWNER = """
import json, sys
from pathlib import Path
from lmi_backend.plan.hardware import Allocation
from lmi_backend.plan.multi_model import Reservations
held = Reservations(sys.argv[1], Path(sys.argv[2])).take(Allocation(**json.loads(sys.argv[3])), ())
print(held is not None, flush=True)
sys.stdin.read()
"""


def test_what_is_held_is_seen_by_others_and_not_by_the_same_model(tmp_path: Path) -> None:
    server, other = Reservations("1", tmp_path), Reservations("2", tmp_path)
    assert server.held() == ()
    assert not list(tmp_path.iterdir())
    held = server.take(A, ())
    assert held
    assert server.held() == other.held("a") == (A,)
    # Triton loads a model's new version before it unloads the old one.
    assert server.held("a") == ()
    again = server.take(A, ())
    assert again
    assert server.held("b") == (A, A)
    held.close()
    again.close()
    again.close()
    assert other.held() == ()


def test_who_planned_with_what_is_no_longer_so_plans_again(tmp_path: Path) -> None:
    reservations = Reservations("1", tmp_path)
    held = reservations.take(A, ())
    assert reservations.take(B, ()) is None
    assert reservations.take(B, (A,))
    assert held


def test_what_is_expected_is_taken_over_by_the_load(tmp_path: Path) -> None:
    reservations = Reservations("/run/1", tmp_path)
    for allocation in (A, B):
        assert reservations.expect(allocation)
    # Of both it is counted that they will come, whichever comes first.
    assert reservations.held("b") == (A,)
    loaded = reservations.take(B, (A,))
    assert loaded
    assert reservations.held() == (A, B)
    loaded.close()
    assert reservations.held() == (A,)


def test_the_dead_hold_nothing(tmp_path: Path) -> None:
    allocation = json.dumps({"model": "a", "shares": {"GPU-1": 0.5}})
    command = [sys.executable, "-c", _OWNER, "1", str(tmp_path), allocation]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == b"True\n"
        assert [each.model for each in Reservations("2", tmp_path).held()] == ["a"]
        owner.send_signal(signal.SIGKILL)
    (folder,) = tmp_path.iterdir()
    assert list(folder.glob("*.json"))
    assert Reservations("2", tmp_path).held() == ()
    assert not list(folder.glob("*.json"))


def test_what_a_stub_starts_does_not_hold_for_it(tmp_path: Path) -> None:
    reservations = Reservations("1", tmp_path)
    held = reservations.take(A, ())
    with child("sleep", "60"):
        # As if the stub had been killed: only its descriptor is closed.
        assert held
        held.files.close()
        assert reservations.held() == ()


def test_two_that_share_a_device_load_one_after_the_other(tmp_path: Path) -> None:
    held = Reservations("1", tmp_path).take(B, ())
    assert held
    waits = tmp_path / "waits"
    other = Reservations("2", tmp_path).take(Allocation(model="c", shares=B.shares), (B,))
    apart = Reservations("2", tmp_path).take(A, (B, Allocation(model="c", shares=B.shares)))
    assert other
    assert apart
    ended = threading.Event()

    def load() -> None:
        with other.loading(waits.touch):
            ended.set()

    with held.loading(lambda: pytest.fail("nobody else loads")):
        # Other devices are another matter.
        with apart.loading(lambda: pytest.fail("nobody else loads there")):
            pass
        thread = threading.Thread(target=load)
        thread.start()
        while not waits.exists():
            assert thread.is_alive()
        assert not ended.is_set()
    thread.join(HANG_SECONDS)
    assert ended.is_set()


def test_a_folder_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"lmi-devices-{os.getuid()}").symlink_to("/")
    with pytest.raises(ConfigurationError, match="cannot be used as a folder"):
        Reservations("1", tmp_path).take(A, ())


def test_a_plan_is_made_again_if_another_was_faster(tmp_path: Path) -> None:
    plans = []
    hardware = Hardware(devices=("0", "1"))

    def plan(machine: Hardware) -> EnginePlan:
        if not plans:
            assert Reservations("2", tmp_path).take(B, ())
        plans.append(machine.allocations)
        return PLAN

    made, held = Reservations("1", tmp_path).plan("a", hardware, plan)
    assert (made, plans) == (PLAN, [(), (B,)])
    assert {each.model for each in Reservations("1", tmp_path).held()} == {"a", "b"}
    held.close()
