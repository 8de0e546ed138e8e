"""The thread that looks at a server, and what makes it look away."""

from pathlib import Path
from typing import Any

import pytest

from lmi_backend.endpoint.address import endpoint_folder, endpoint_name
from lmi_backend.errors import UnavailableError
from lmi_backend.ipc import messages as msg
from lmi_backend.supervisor import health
from lmi_backend.supervisor.health import HealthMonitor
from tests.support.waiting import wait_for


class Server:
    """Says what it is told to, once each; then it is gone."""

    def __init__(self, *said: Any) -> None:
        self.said = list(said)

    def index(self) -> Any:
        if not self.said:
            raise UnavailableError("no answer")
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


def test_a_fault_of_its_own_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(health, "_LOOK_SECONDS", 0.01)
    server = Server(TypeError("a bug"), [{"state": "READY"}], [])
    # No process has this number, so nothing is killed.
    monitor = HealthMonitor(server, 1 << 30, ["model"], tmp_path)  # type: ignore[arg-type]
    monitor.start()
    wait_for(lambda: monitor.trouble)
    monitor.join()
    assert monitor.trouble == "tritonserver does not answer"
    said = capsys.readouterr().err
    assert said.count("a look at the server failed") == said.count("Traceback") == 2


def test_a_model_whose_socket_is_removed_is_not_served_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_folder(tmp_path) / f"{1 << 30}-{endpoint_name('model')}.sock"
    endpoint.parent.mkdir(mode=0o700)
    endpoint.touch()
    monkeypatch.setattr(health, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(health, "lives", lambda process: True)
    monkeypatch.setattr(health, "ask_health", lambda *_: msg.Health(True, ""))
    index = [{"name": name, "state": "READY"} for name in ("model", "alias")]
    server = Server(*[index] * 1000)
    monitor = HealthMonitor(server, 1 << 30, ["model", "alias"], tmp_path)  # type: ignore[arg-type]
    monitor.start()
    wait_for(lambda: len(server.said) < 980)
    # An alias model never has one.
    assert not monitor.trouble
    endpoint.unlink()
    wait_for(lambda: monitor.trouble)
    monitor.join()
    assert monitor.trouble == "the socket of model was removed"
