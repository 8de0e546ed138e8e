"""Who holds the devices: several servers and their stubs, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lmi_backend.engine_config import EngineConfig
from lmi_backend.errors import ConfigurationError
from lmi_backend.plan import EnginePlan
from lmi_backend.plan.allocations import Allocation
from lmi_backend.plan.engine_plan import Launch, Parallel
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.reservations import Reservations
from tests.support.waiting import HANG_SECONDS

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
from lmi_backend.plan.allocations import Allocation
from lmi_backend.plan.reservations import Reservations
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
    with subprocess.Popen(["sleep", "60"]) as child:
        # As if the stub had been killed: only its descriptor is closed.
        assert held
        held._files.close()
        assert reservations.held() == ()
        child.kill()


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
