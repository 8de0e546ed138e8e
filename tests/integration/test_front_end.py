"""The front end's life beside a server; tests/chaos has what breaks."""

import subprocess
from pathlib import Path

import psutil

from tests.support.run.ports import free_ports, listens
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import LMI


def test_several_that_share_a_port_are_kept_up_and_end_with_who_keeps_them(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    command = [*LMI, "frontend", "--port", str(port), "--run-folder", str(tmp_path)]
    command += ["--frontend-processes", "2"]
    keeper = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        kept = psutil.Process(keeper.pid)
        wait_for(lambda: listens(port) and len(kept.children()) == 2)
        first, second = kept.children()
        first.kill()
        wait_for(lambda: not first.is_running() and len(kept.children()) == 2)
        both = kept.children()
        assert second in both
    finally:
        keeper.kill()
        keeper.wait()
    psutil.wait_procs(both, timeout=HANG_SECONDS)
    assert not [each for each in both if each.is_running()]
    assert not listens(port)
