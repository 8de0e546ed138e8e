from dataclasses import replace

import pytest

from lmi_backend.deploy.served import Needs
from lmi_backend.engine_config import EngineConfig, RequestLimits
from lmi_backend.plan.engine_plan import EnginePlan, Launch, Parallel
from lmi_backend.printable import GIB

PLAN = EnginePlan(engine="echo", config=EngineConfig(model="m"), launch=Launch(python="python"))


def _on(*groups: str, **fields: int) -> Needs:
    parallel = Parallel(device_groups=tuple(tuple(group) for group in groups))
    return Needs.of(replace(PLAN, parallel=parallel, **fields))


def test_devices_are_those_of_all_workers() -> None:
    assert [_on("0").devices, _on("01", "23").devices, _on("").devices] == [1, 4, 0]


def test_a_device_takes_host_memory_and_a_place_in_shared_memory() -> None:
    one, four = _on("0"), _on("0123")
    assert four.shared_memory - one.shared_memory == 3 * GIB
    assert four.memory - one.memory == 3 * (8 + 1) * GIB
    assert four.cpus - one.cpus == 3


def test_the_defaults_are_those_of_a_worker_on_a_cpu() -> None:
    needs = _on("")
    assert (needs.shared_memory, needs.load_seconds) == (Needs().shared_memory, 1800)
    assert needs.startup_failures * 10 == 1800


@pytest.mark.parametrize(("is_parallel", "seconds"), [(True, 60), (False, 120)])
def test_workers_that_load_one_after_the_other_take_longer(is_parallel: bool, seconds: int) -> None:
    launch = Launch(python="", load_timeout=60, parallel_loading=is_parallel)
    plan = replace(PLAN, launch=launch, parallel=Parallel(device_groups=(("0",), ("1",))))
    assert Needs.of(plan).load_seconds == seconds


def test_a_download_counts_before_the_load() -> None:
    downloaded = Needs.of(PLAN, is_downloaded=True)
    # Kubelet would restart a server that downloads 140 GB at 70 MB/s.
    assert downloaded.startup_failures * 10 >= 1800 + 140e9 / 70e6
    assert downloaded.progress_seconds > downloaded.start_seconds > Needs.of(PLAN).start_seconds


def test_the_grace_is_longer_than_a_request() -> None:
    plan = replace(PLAN, limits=RequestLimits(request_timeout=600))
    assert Needs.of(plan).grace_seconds == 10 + 600 + 30
