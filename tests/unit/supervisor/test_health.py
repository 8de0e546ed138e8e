"""The thread that looks at a server, and what makes it look away."""

import subprocess
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi_backend.endpoint.address import endpoint_folder, endpoint_name
from lmi_backend.errors import UnavailableError
from lmi_backend.ipc import messages as msg
from lmi_backend.supervisor import health, processes
from lmi_backend.supervisor.health import HealthMonitor
from tests.support.run.waiting import HANG_SECONDS, wait_for


class Server:
    """Says what it is told to, once each; then it is gone."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def index(self) -> Any:
        if not self.answers:
            raise UnavailableError("no answer")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_fault_of_its_own_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(health, "_LOOK_SECONDS", 0.01)
    server = Server(TypeError("a bug"), [{"state": "READY"}], [])
    # No process has this number, so nothing is killed.
    monitor = HealthMonitor(server, 1 << 30, ["model"], tmp_path)  # type: ignore[arg-type]
    monitor.start()
    wait_for(lambda: monitor.problem)
    monitor.join()
    assert monitor.problem == "tritonserver does not answer"
    errors = capsys.readouterr().err
    assert errors.count("a look at the server failed") == errors.count("Traceback") == 2


def test_a_stub_that_ends_is_noticed_before_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_LOOK_SECONDS", 3600.0)
    server = Server(*[[{"name": "model", "state": "READY"}]] * 1000)
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as stub:
        stubs = {"model": psutil.Process(stub.pid)}
        monkeypatch.setattr(health, "stubs_of", lambda _: stubs)
        monitor = HealthMonitor(server, 1 << 30, ["model"], tmp_path)  # type: ignore[arg-type]
        monitor.stubs = stubs
        waits = threading.Event()

        def lives(process: psutil.Process | None) -> bool:
            is_alive = processes.lives(process)
            waits.set()
            return is_alive

        monkeypatch.setattr(health, "lives", lives)
        monitor.start()
        assert waits.wait(HANG_SECONDS)
        stub.kill()
    wait_for(lambda: monitor.problem)
    assert monitor.problem == "the stub of model died"
    # One look may be at a moment when its model is being unloaded.
    assert len(server.answers) == 998


def test_a_model_whose_socket_is_removed_is_not_served_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_folder(tmp_path) / f"{1 << 30}-{endpoint_name('model')}.sock"
    endpoint.parent.mkdir(mode=0o700)
    endpoint.touch()
    monkeypatch.setattr(health, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(health, "lives", lambda process: True)
    monkeypatch.setattr(health, "request_health", lambda *_: msg.Health(True, ""))
    index = [{"name": name, "state": "READY"} for name in ("model", "alias")]
    server = Server(*[index] * 1000)
    monitor = HealthMonitor(server, 1 << 30, ["model", "alias"], tmp_path)  # type: ignore[arg-type]
    monitor.start()
    wait_for(lambda: len(server.answers) < 980)
    # An alias model never has one.
    assert not monitor.problem
    endpoint.unlink()
    wait_for(lambda: monitor.problem)
    monitor.join()
    assert monitor.problem == "the socket of model was removed"
