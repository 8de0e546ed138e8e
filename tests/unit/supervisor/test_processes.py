import os
import subprocess

import pytest

from lmi_backend.supervisor import processes
from lmi_backend.supervisor.processes import running


def test_a_process_is_found_by_program_and_mark_if_it_is_this_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another user may read a server's marks, and start a process that bears them."""
    mark = f"lmi_test_{os.getpid()}"
    command = ["/opt/tritonserver", "-c", "read line", mark]
    with subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE) as process:
        assert [each.pid for each in running(("/tritonserver",), mark)] == [process.pid]
        assert not running(("/other",), mark)
        assert not running(("/tritonserver",), f"{mark}_other")
        monkeypatch.setattr(processes.os, "getuid", lambda: os.geteuid() + 1)
        assert not running(("/tritonserver",), mark)
        process.communicate(b"\n")
