"""Who keeps front ends up stays, whatever happens to it."""

import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest

from lmi_backend.front_end_settings import Settings
from lmi_backend.supervisor import front_end as module
from lmi_backend.supervisor.front_end import FrontEnds, Restarted
from tests.support.run.ports import free_ports


class Process:
    """In the place of a front end, which does what the test says."""

    made: ClassVar[list["Process"]] = []
    fault: Exception | None = None

    def __init__(self, *_: Any) -> None:
        self.age = 0.0
        self.is_running, self.leaves = True, False
        self.made.append(self)

    def problem(self) -> str:
        if self.fault:
            raise self.fault
        return "" if self.is_running else "was killed"

    def send_signal(self, _: int) -> None:
        pass

    def stop(self) -> None:
        self.is_running = False


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    monkeypatch.setattr(module, "BeatingProcess", Process)
    monkeypatch.setattr(Process, "made", [])
    return Process.made


def _keep(*looks: Any, port: int = 0) -> None:
    """Do something before each look, of which the last is the end."""
    left = list(looks)

    def wait_for_end(_: float) -> bool:
        if left:
            left.pop(0)()
        return not left

    with TemporaryDirectory() as folder:
        settings = Settings(base=Path(folder), port=port)
        FrontEnds(settings).keep(wait_for_end, 60, lambda: True)


def test_an_unexpected_exception_costs_a_front_end_and_not_its_keeper(
    made: list[Process], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fault() -> None:
        monkeypatch.setattr(Process, "fault", ValueError("34 is not a valid Signals"))

    def mend() -> None:
        monkeypatch.setattr(Process, "fault", None)

    _keep(fault, mend, int, int)
    errors = capsys.readouterr().err
    assert errors.count("Traceback") == 1
    assert "the front end cannot be watched: it is started again in 0 s" in errors
    assert len(made) == 2
    assert not any(each.is_running for each in made)


def test_one_that_served_is_started_at_once_however_often(
    made: list[Process], capsys: pytest.CaptureFixture[str]
) -> None:
    def die() -> None:
        made[-1].age, made[-1].is_running = 60.0, False

    _keep(die, int, die, int, die, int, int)
    assert capsys.readouterr().err.count("was killed: it is started again in 0 s") == 3
    assert len(made) == 4


def test_one_that_leaves_finishes_beside_the_next_one(
    made: list[Process], capsys: pytest.CaptureFixture[str]
) -> None:
    def leave() -> None:
        made[0].leaves = True

    def both() -> None:
        assert [each.is_running for each in made] == [True, True]
        made[0].is_running = False

    _keep(leave, int, both, int)
    assert len(made) == 2
    assert "started again" not in capsys.readouterr().err


def test_the_end_stops_one_that_leaves_too(made: list[Process]) -> None:
    def leave() -> None:
        made[0].leaves = True

    _keep(leave, int, int)
    assert [each.is_running for each in made] == [False, False]


def test_its_socket_outlives_it_but_not_a_long_pause(made: list[Process]) -> None:
    (port,) = free_ports(1)
    listened = []

    def die() -> None:
        made[-1].is_running = False

    def look() -> None:
        with socket.socket() as probe:
            listened.append(probe.connect_ex(("127.0.0.1", port)) == 0)

    # The pauses are 0, 1, 2, 4 and 8 s; no look waits for their end.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Restarted, "_start_at", property(lambda _: 0.0, lambda *_: None), raising=False
        )
        _keep(*[die, look, int] * 5, look, port=port)
    assert listened == [True] * 4 + [False, True]
