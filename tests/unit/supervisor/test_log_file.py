import subprocess
from pathlib import Path

import pytest

from lmi_backend.supervisor.log_file import log_options


def _log(log_file: Path) -> None:
    with log_options(log_file) as options:
        command = ["sh", "-c", "echo out; echo err >&2; kill -PIPE $$; echo lives"]
        subprocess.run(command, check=True, **options)


def test_a_program_logs_to_the_file_and_does_not_die_of_a_reader_that_left(tmp_path: Path) -> None:
    for _ in range(2):
        _log(tmp_path / "log")
    assert (tmp_path / "log").read_text() == "out\nerr\nlives\n" * 2


def test_a_file_that_is_gone_does_not_stop_a_program(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _log(tmp_path / "gone" / "log")
    said = capfd.readouterr()
    assert said.out == "out\nlives\n"
    assert "gone/log: No such file or directory; the log goes to standard error" in said.err
