"""vLLM's processes on a CPU: one computes by itself."""

import os
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.supervisor.processes import lives
from tests.contract.test_spares import deaths, oldest, spare_of, wait_for_next
from tests.support.run.places import ENGINE_PYTHON, ROOT, TINY
from tests.support.run.ports import free_ports
from tests.support.run.processes import shared_memory
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.harness import Harness

_SOURCES = "lib/python3*/site-packages/vllm"
_VARIABLES = "utils/ompmultiprocessing.py"


def _source(name: str) -> Path:
    (folder,) = ENGINE_PYTHON.parents[1].glob(_SOURCES)
    return folder / name


def _processes(engine: Harness, name: str) -> list[psutil.Process]:
    family = engine.workers[0].children(recursive=True)
    return [each for each in family if name in " ".join(each.cmdline())]


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
def test_one_rank_computes_in_its_core(engine: Harness) -> None:
    if not _source(_VARIABLES).exists():
        pytest.skip("this release's worker binds its threads by itself")
    (core,) = _processes(engine, "VLLM::")
    assert "EngineCore" in " ".join(core.cmdline())
    # It has the variables of a worker: its threads keep to their cores and leave one to others.
    assert os.sched_getaffinity(core.pid) < os.sched_getaffinity(engine.workers[0].pid)


_PREPARED = """
import sys
from vllm import AsyncEngineArgs
from lmi_backend.engines.vllm import cpu, names

def executor(**chosen):
    arguments = AsyncEngineArgs(model=sys.argv[1], **chosen)
    config = arguments.create_engine_config()
    with cpu.compute_alone(config, chosen=arguments.distributed_executor_backend):
        return config.parallel_config.distributed_executor_backend

try:
    names.OMPProcessManager
except ImportError:  # before 0.20
    assert executor() == "mp"
else:
    assert executor() is names.UniProcExecutor
assert executor(distributed_executor_backend="mp") == "mp"
assert executor(tensor_parallel_size=2) == "mp"
"""


def test_a_worker_process_can_be_asked_for(vllm_interpreter: Any, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_PREPARED)
    vllm_interpreter.run(str(script), str(TINY / "llama"))


_GROUPS = """
import os, subprocess, sys
import psutil, torch
import torch.distributed as groups
from lmi_backend.engines import closed_groups
def listening():
    return [each for each in psutil.Process().net_connections("inet") if each.status == "LISTEN"]

closed_groups.install()
closed_groups.install()
rank, ranks = map(int, sys.argv[1:3])
names = f"cat /proc/{os.getpid()}/task/*/comm 2> /dev/null"
for place in sys.argv[3:]:
    groups.init_process_group("gloo", init_method=place, world_size=ranks, rank=rank)
    assert not listening() or (ranks > 1 and place.startswith("tcp")), listening()
    pair = groups.new_group(list(range(ranks)), backend="gloo")
    alone = [groups.new_group([each], backend="gloo") for each in range(ranks)][rank]
    for group, expected in ((pair, ranks), (alone, 1)):
        summed = torch.ones(1)
        groups.all_reduce(summed, group=group)
        groups.barrier(group=group)
        assert summed.item() == expected
    assert len(listening()) == (ranks > 1 and rank == 0 and place.startswith("tcp"))
    # A thread names itself.
    while subprocess.getoutput(names).count("gloo_tcp_loop") != (1 if ranks == 1 else 3): pass
    groups.destroy_process_group()
# A thread of torch's that drops a tensor while Python ends would abort.
os._exit(0)
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_groups_close_their_ports_once_their_members_are_connected(
    ranks: int, tmp_path: Path
) -> None:
    # A port that a group leaves open is seen with the next one.
    places = [f"file://{tmp_path / 'store'}", f"tcp://127.0.0.1:{free_ports(1)[0]}"]
    command, more = [str(ENGINE_PYTHON), "-c", _GROUPS], os.environ | {"PYTHONPATH": str(ROOT)}
    words = [[str(rank), str(ranks), *places] for rank in range(ranks)]
    members = [subprocess.Popen([*command, *each], env=more) for each in words]
    assert [each.wait(HANG_SECONDS) for each in members] == [0] * ranks


@pytest.mark.parametrize("engine", ["vllm split"], indirect=True)
def test_a_spare_takes_over_when_a_worker_of_vllms_is_killed(engine: Harness) -> None:
    """The last test of this engine."""
    spare, before = spare_of(engine, engine.workers[0]), deaths(engine)
    with engine.whole_streams():
        rank, _ = _processes(engine, "VLLM::Worker")
        shared = shared_memory([rank], "psm_")
        assert shared
        rank.kill()
    # It was killed with all that would have removed them.
    wait_for(lambda: not any(map(os.path.exists, shared)))
    wait_for_next(engine, before)
    assert oldest(engine) == spare
    # Another is begun. That it waits, too, is seen of two ranks of `echo`.
    wait_for(lambda: len([*filter(lives, engine.workers)]) == 2)
    family = spare.children(recursive=True)
    spare.kill()
    assert family
    wait_for(lambda: not any(map(lives, family)))
