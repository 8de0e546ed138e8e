"""The command, run in this process."""

from typing import NamedTuple

import pytest

from lmi_backend.cli.main import main


class Printed(NamedTuple):
    out: str
    err: str


class Command:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, status: int = 0) -> Printed:
        """Run it, see that it ends with a status, and return what it printed."""
        self._capsys.readouterr()
        try:
            ended: object = main([*map(str, words)])
        except SystemExit as end:
            ended = end.code
        printed = Printed(*self._capsys.readouterr())
        assert ended == status, printed
        return printed


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)
