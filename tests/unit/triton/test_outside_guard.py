"""The process that ends a stub from outside, with a server and a stub that only sleep."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import HANG_SECONDS

CODE = """
import sys
from lmi_backend.triton import outside_guard
outside_guard._GRACE_SECONDS = 0.2
outside_guard.main(sys.argv[1:])
"""


class Trio:
    """A server, its stub, and the guard; `region` is what the server would remove."""

    def __init__(self, stack: ExitStack, region: Path) -> None:
        self.region = region
        region.touch()
        self.server, self.stub = (
            stack.enter_context(subprocess.Popen(["sleep", "600"])) for _ in range(2)
        )
        descriptors = [os.pidfd_open(each.pid) for each in (self.server, self.stub)]
        words = [sys.executable, "-c", CODE, *map(str, descriptors), "echo", str(region)]
        self.guard = stack.enter_context(
            subprocess.Popen(words, pass_fds=descriptors, stderr=subprocess.PIPE, text=True)
        )
        for descriptor in descriptors:
            os.close(descriptor)

    def output(self) -> str:
        return self.guard.communicate(timeout=HANG_SECONDS)[1]


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    with ExitStack() as stack:
        trio = Trio(stack, tmp_path / "region")
        yield trio
        for each in (trio.server, trio.stub, trio.guard):
            each.kill()


def test_a_stub_that_outlives_its_server_is_ended_with_what_it_leaves(trio: Trio) -> None:
    trio.server.kill()
    assert "echo: tritonserver has exited and its stub had not" in trio.output()
    assert trio.stub.wait(HANG_SECONDS) == -9
    assert not trio.region.exists()


def test_of_a_stub_that_ends_with_its_server_only_files_are_removed(trio: Trio) -> None:
    trio.server.kill()
    trio.stub.terminate()
    assert trio.output() == ""
    assert trio.stub.wait(HANG_SECONDS) == -15
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
