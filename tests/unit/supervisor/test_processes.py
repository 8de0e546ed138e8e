import os
import subprocess
import sys

import psutil
import pytest

from lmi_backend.supervisor import processes
from lmi_backend.supervisor.processes import StubStarts, running, wait_for_ends
from tests.support.run.processes import child
from tests.support.run.waiting import wait_for


def test_a_process_is_found_by_program_and_mark_if_it_is_this_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another user may read a server's marks, and start a process that bears them."""
    mark = f"lmi_test_{os.getpid()}"
    command = ["/opt/tritonserver", "-c", "read line", mark]
    with subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        # Who starts a program goes on a moment before the kernel has its words.
        (found,) = wait_for(lambda: running(("/tritonserver",), mark))
        assert found.pid == process.pid
        assert not running(("/other",), mark)
        assert not running(("/tritonserver",), f"{mark}_other")
        monkeypatch.setattr(processes.os, "getuid", lambda: os.geteuid() + 1)
        assert not running(("/tritonserver",), mark)
        process.communicate(b"\n")


def test_a_zombie_that_its_parent_leaves_is_not_waited_for() -> None:
    """A killed stub is left to who is the parent of orphans, who may look once in seconds."""
    command = ["/bin/sh", "-c", "sleep 1000 & echo $!; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        # The shell itself would wait for a child that ends before.
        wait_for(lambda: psutil.Process(parent.pid).name() == "cat")
        assert wait_for_ends([child], 0.0) == [child]
        child.kill()
        assert wait_for_ends([child], 60.0) == []
        assert child.status() == psutil.STATUS_ZOMBIE
        parent.communicate(b"")


def test_a_stub_that_is_dead_or_waited_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_NOTICE_SECONDS", 0.2)
    text = "import os; os.spawnlp(os.P_NOWAIT, 'true', 'true'); input()"
    with child(sys.executable, "-c", text, stdin=subprocess.PIPE) as server:
        wait_for(StubStarts(server.pid).has_dead_one)
    text = "import os; os.spawnlp(os.P_WAIT, 'sleep', 'sleep', '1000')"
    with child(sys.executable, "-c", text) as server:
        starts = StubStarts(server.pid)
        wait_for(lambda: starts.has_dead_one() or server.poll() is not None)
        # It was waited for, so it is killed.
        assert server.wait() == 0
