"""A worker that is a group of MPI ranks: what happens when one of its processes dies."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import HttpRequest
from tests.support.run.processes import child
from tests.support.run.waiting import wait_for
from tests.support.servers.harness import Harness

ECHO = {
    "engine": "MPI",
    "option.rolling_batch": "echo",
    "option.tensor_parallel_degree": 2,
    "option.token_seconds": 0.01,
}


def _rank(process: psutil.Process) -> int | None:
    """Return the rank of a process that is one; engines' own children are none."""
    try:
        is_main = "lmi_backend.worker.main" in process.cmdline()
        rank = process.environ().get("OMPI_COMM_WORLD_RANK")
    except psutil.Error:
        return None
    return int(rank) if is_main and rank is not None else None


def _members(group: Harness) -> tuple[psutil.Process, list[psutil.Process], list[psutil.Process]]:
    """Return mpirun, its ranks in their order, and every process of the group."""
    (launcher,) = group.workers
    all_of_them = [launcher, *launcher.children(recursive=True)]
    ranks = {rank: each for each in all_of_them if (rank := _rank(each)) is not None}
    return launcher, [ranks[number] for number in sorted(ranks)], all_of_them


def _is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def group(start: Any) -> Iterator[Any]:
    with start(ECHO | {"option.migration_timeout": 0}) as harness:
        yield harness


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_rank_is_named_and_the_group_starts_again(group: Any, killed: int) -> None:
    streams = [group.start("a b c", max_tokens=4000).wait_first() for _ in range(8)]
    _, ranks, members = _members(group)
    assert len(ranks) == 2
    ranks[killed].kill()
    for stream in streams:
        error = stream.wait().error
        assert isinstance(error, EngineDeadError)
        assert f"rank {killed}" in str(error)
        # Its end is seen, and not its silence.
        assert "sent nothing" not in str(error)
        assert stream.endings == 1
    wait_for(lambda: all(map(_is_gone, members)))
    wait_for(lambda: group.service.health().is_ready)
    assert group.ask("a", max_tokens=2).text == "aa"
    assert [w.deaths for w in group.service.snapshot().workers] == [1]


def test_a_killed_launcher_ends_the_group(group: Any) -> None:
    stream = group.start("a b c", max_tokens=4000).wait_first()
    launcher, _, members = _members(group)
    launcher.kill()
    error = stream.wait().error
    assert isinstance(error, EngineDeadError)
    assert "mpirun" in str(error)
    wait_for(lambda: all(map(_is_gone, members)))
    wait_for(lambda: group.service.health().is_ready)


def test_a_rank_that_hangs_ends_the_group(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi_backend.pool.rank_group.SILENCE_SECONDS", 3)
    with start(ECHO | {"option.migration_timeout": 0}) as group:
        stream = group.start("a b c", max_tokens=4000).wait_first()
        _, ranks, _ = _members(group)
        ranks[1].send_signal(signal.SIGSTOP)
        assert "rank 1 sent nothing" in str(stream.wait().error)


def test_two_groups_share_the_requests(start: Any) -> None:
    with start(ECHO | {"minWorkers": 2}) as groups:
        streams = [groups.start("a", max_tokens=100) for _ in range(8)]
        wait_for(lambda: [w.stats.running for w in groups.service.snapshot().workers] == [4, 4])
        assert all(stream.wait().error is None for stream in streams)


# Starts a service as the stub does, says so, and waits to be killed.
_STUB = """
import sys, time
sys.path[:0] = {path!r}
from pathlib import Path
from tests.support.servers.harness import Harness
from tests.support.run.waiting import wait_for
from tests.support.servers.harness import started
with started({properties!r}, Path({folder!r})) as harness:
    harness.start("a b c", max_tokens=100000).wait_first()
    print("ready", flush=True)
    time.sleep(600)
"""


def test_ranks_end_when_the_stub_is_killed(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    program = _STUB.format(path=[here], properties=ECHO, folder=str(tmp_path))
    with child(sys.executable, "-c", program, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        assert stub.stdout.readline() == "ready\n"
        members = psutil.Process(stub.pid).children(recursive=True)
        assert len([each for each in members if _rank(each) is not None]) == 2
        stub.kill()
        stub.wait()
        wait_for(lambda: all(map(_is_gone, members)))


_HANDLER = """
import os
from mpi4py import MPI

def handle(inputs):
    # Hangs unless every rank gets every request, in the same order.
    if inputs.is_empty():
        return None
    from djl_python import Output
    gathered = MPI.COMM_WORLD.allgather((os.environ["RANK"], inputs.get_as_json()["inputs"]))
    return Output().add_as_json(gathered)
"""


def test_a_handler_of_the_users_own_gets_every_request_on_every_rank(
    start: Any, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(_HANDLER)
    properties = {"engine": "MPI", "option.tensor_parallel_degree": 2}
    with start(properties, tmp_path) as group:
        bodies = [b'{"inputs": "%d"}' % number for number in range(20)]
        sinks = [group.submit(HttpRequest("/invocations", body)) for body in bodies]
        for number, sink in enumerate(sinks):
            assert sink.answer[1] == [["0", str(number)], ["1", str(number)]]
