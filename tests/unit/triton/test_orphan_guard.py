"""The process that ends a stub whose server has died, and that it is started for each stub."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from lmi_backend.triton import orphan_guard
from tests.support.run.processes import child
from tests.support.run.waiting import HANG_SECONDS, wait_for

STUB = """
import pathlib, sys, time
from lmi_backend.triton.orphan_guard import start_guard
start_guard("echo", int(sys.argv[1]), [pathlib.Path(sys.argv[2])])
print("started", flush=True)
time.sleep(600)
"""


class Trio:
    """A server, its stub, and the guard.

    Args:
        region: what the server would remove.
        lowest: of the guard's descriptors.
    """

    def __init__(self, stack: ExitStack, region: Path, lowest: int) -> None:
        self.region = region
        region.touch()
        self.server, self.stub = (
            stack.enter_context(subprocess.Popen(["sleep", "600"])) for _ in range(2)
        )
        ends = [os.pidfd_open(each.pid) for each in (self.server, self.stub)]
        # As in a stub that inherits many connections of its server.
        descriptors = [fcntl.fcntl(each, fcntl.F_DUPFD, lowest) for each in ends]
        words = [sys.executable, orphan_guard.__file__, *map(str, descriptors), "echo", str(region)]
        self.guard = stack.enter_context(
            subprocess.Popen(words, pass_fds=descriptors, stderr=subprocess.PIPE, text=True)
        )
        for descriptor in (*ends, *descriptors):
            os.close(descriptor)

    def output(self) -> str:
        return self.guard.communicate(timeout=HANG_SECONDS)[1]


@pytest.fixture(params=[3, 1024], ids=["few files are open", "many files are open"])
def trio(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trio]:
    with ExitStack() as stack:
        trio = Trio(stack, tmp_path / "region", request.param)
        yield trio
        for each in (trio.server, trio.stub, trio.guard):
            each.kill()


def test_a_stub_that_outlives_its_server_is_ended_with_what_it_leaves(trio: Trio) -> None:
    trio.server.kill()
    assert "echo: tritonserver has exited, and its stub was killed" in trio.output()
    assert trio.stub.wait(HANG_SECONDS) == -9
    assert not trio.region.exists()


def test_a_stub_that_ends_before_its_server_is_let_alone(trio: Trio) -> None:
    trio.stub.terminate()
    assert trio.output() == ""
    assert trio.server.poll() is None
    assert trio.region.exists()


def test_what_a_stub_leaves_is_removed_although_nobody_reads_the_log(trio: Trio) -> None:
    assert trio.guard.stderr is not None
    trio.guard.stderr.close()
    trio.server.kill()
    assert trio.guard.wait(HANG_SECONDS) == 0
    assert trio.stub.wait(HANG_SECONDS) == -9
    assert not trio.region.exists()


def test_a_stub_whose_server_died_before_is_ended_at_once(tmp_path: Path) -> None:
    server, region = subprocess.Popen(["true"]), tmp_path / "region"
    region.touch()
    server.wait()
    stub = [sys.executable, "-c", STUB, str(server.pid), str(region)]
    assert subprocess.run(stub, check=False, timeout=HANG_SECONDS).returncode == -9
    assert not region.exists()


def test_it_is_out_of_reach_of_what_ends_its_server_and_ends_with_the_stub() -> None:
    command = [sys.executable, "-c", STUB, str(os.getpid()), "/dev/shm/none"]
    with child(*command, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        assert stub.stdout.readline() == "started\n"
        (guard,) = psutil.Process(stub.pid).children()
        # Who starts a program goes on a moment before the kernel has its words.
        wait_for(lambda: guard.cmdline()[-2:] == ["echo", "/dev/shm/none"])
        assert guard.pid == os.getsid(guard.pid)
    wait_for(lambda: not guard.is_running())
