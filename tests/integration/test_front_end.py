"""The front end's life beside a server; tests/chaos has what breaks."""

import subprocess
import tempfile
from pathlib import Path

import psutil
import pytest

from lmi_backend.options import load_options
from lmi_backend.repository.writer import write_model
from tests.support.attackers import ECHO
from tests.support.ports import free_ports, listens
from tests.support.serving import LMI, front_end, tritonserver, write_properties
from tests.support.waiting import HANG_SECONDS, wait_for

BODY = {"inputs": "a b c", "parameters": {"max_new_tokens": 3}}


def test_it_serves_the_models_of_a_server_that_others_start(tmp_path: Path) -> None:
    """`lmi-backend frontend` is there first; it finds the models of one server, then the next."""
    repository = tmp_path / "models"
    folder = write_properties(tmp_path / "echo", ECHO)
    write_model(folder, repository, "echo", load_options(folder, {}), force=True)
    # The path of a Unix socket holds 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="lmi-test-") as run,
        front_end(tmp_path, f"--run-folder={run}") as front,
    ):
        for turn in ("first", "second"):
            (tmp_path / turn).mkdir()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TMPDIR", run)
                with tritonserver(repository, tmp_path / turn):
                    wait_for(lambda: front.ask("/ping")[0] == 200)
                    assert front.ask("/invocations", BODY)[0] == 200
                wait_for(lambda: front.ask("/ping")[0] == 503)


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
