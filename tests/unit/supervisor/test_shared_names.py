"""Names in /dev/shm, which containers may share while their process ids are alike."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.supervisor import shared_names
from lmi_backend.supervisor.shared_names import SharedNames, remove_abandoned


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /dev/shm."""
    monkeypatch.setattr(shared_names, "SHARED_MEMORY", tmp_path)
    return tmp_path


def _names(memory: Path) -> set[str]:
    return {path.name for path in memory.iterdir()}


def _with_region(memory: Path) -> SharedNames:
    names = SharedNames.claim()
    (memory / f"{names.prefix}region").touch()
    return names


def test_one_that_stops_leaves_the_memory_of_another(memory: Path) -> None:
    first, second = _with_region(memory), _with_region(memory)
    assert first.prefix != second.prefix
    second.remove()
    # It may start a server again, under the same names.
    assert f"{second.prefix}owner" in _names(memory)
    second.give_back()
    assert _names(memory) == {f"{first.prefix}owner", f"{first.prefix}region"}
    for each in (first, second):
        os.close(each.lock)


def test_two_containers_that_share_memory_have_names_of_their_own() -> None:
    text = """
import os
from lmi_backend.supervisor.shared_names import SharedNames
names = SharedNames.claim()
print(os.getpid(), names.prefix)
names.give_back()
"""
    unshare = ["unshare", "--map-root-user", "--fork", "--pid"]
    if subprocess.call([*unshare, "true"]):
        pytest.skip("no namespaces for this user")
    command = [*unshare, sys.executable, "-c", text]
    outputs = [subprocess.check_output(command, text=True).split() for _ in range(2)]
    assert [number for number, _ in outputs] == ["1", "1"]
    assert len({prefix for _, prefix in outputs}) == 2


def test_what_one_leaves_that_was_killed_with_all_its_processes_is_removed(memory: Path) -> None:
    living, dead = _with_region(memory), _with_region(memory)
    os.close(dead.lock)
    (memory / "lmi_1_from_an_older_release").touch()
    remove_abandoned()
    kept = {f"{living.prefix}owner", f"{living.prefix}region", "lmi_1_from_an_older_release"}
    assert _names(memory) == kept
    os.close(living.lock)


def test_memory_is_not_abandoned_while_a_server_or_stub_lives(memory: Path) -> None:
    names = _with_region(memory)
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[names.lock]) as server:
        os.close(names.lock)
        remove_abandoned()
        assert len(_names(memory)) == 2
        server.communicate(b"\n")
    remove_abandoned()
    assert not _names(memory)


def test_names_that_are_removed_before_they_are_locked_are_not_used(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = iter(["first", "second"])
    monkeypatch.setattr(shared_names.secrets, "token_hex", lambda _: next(chosen))
    lock = shared_names.fcntl.flock

    def another_is_quicker(descriptor: int, how: int) -> None:
        (memory / "lmi_first_owner").unlink(missing_ok=True)
        lock(descriptor, how)

    monkeypatch.setattr(shared_names.fcntl, "flock", another_is_quicker)
    names = SharedNames.claim()
    assert names.prefix == "lmi_second_"
    os.close(names.lock)


def test_what_cannot_be_removed_keeps_nothing_else(memory: Path) -> None:
    """Any user may read the prefix, and make something that begins with it."""
    names = _with_region(memory)
    (memory / f"{names.prefix}another").mkdir()
    names.give_back()
    assert _names(memory) == {f"{names.prefix}another"}
    os.close(names.lock)


def test_without_shared_memory_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_names, "SHARED_MEMORY", Path("/nowhere"))
    with pytest.raises(ConfigurationError, match="/nowhere: cannot be used: No such file"):
        SharedNames.claim()
    remove_abandoned()
