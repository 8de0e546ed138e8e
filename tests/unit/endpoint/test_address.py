"""Where a model's endpoint is, and who waits for it."""

import os
import subprocess
from pathlib import Path

import pytest

from lmi_backend.endpoint.address import endpoint_address, waiting_mark, waiting_marks
from lmi_backend.errors import ConfigurationError
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    return tmp_path


def test_it_is_in_a_folder_of_this_user_alone(folder: Path) -> None:
    address = endpoint_address("m")
    assert address.parent.parent == folder
    assert address.parent.stat().st_mode & 0o777 == 0o700
    assert address == endpoint_address("m")
    assert address.name.startswith(f"{os.getppid()}-")
    assert address != endpoint_address("n")


def test_a_name_of_any_length_fits_into_a_sockets_path() -> None:
    assert len(endpoint_address("ü/" * 1000).name) == len(endpoint_address("m").name) < 40


def test_a_folder_that_is_somebody_elses_is_refused(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / f"lmi-endpoints-{os.getuid()}").symlink_to(folder / "elsewhere")
    with pytest.raises(ConfigurationError):
        endpoint_address("m")


def test_only_the_living_wait() -> None:
    mine = waiting_mark("m")
    ended = subprocess.Popen(["true"])
    ended.wait()
    for mark in (mine, mine.with_suffix(f".{ended.pid}"), endpoint_address("m")):
        mark.touch()
    waiting_mark("another").touch()
    assert waiting_marks("m") == [mine]
    mine.unlink()
    assert waiting_marks("m") == []
