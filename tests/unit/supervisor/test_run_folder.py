"""The folder of a `serve`, wherever TMPDIR points and whoever cleans there."""

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_backend.errors import ConfigurationError
from lmi_backend.supervisor import run_folder
from lmi_backend.supervisor.run_folder import RunFolder, shell_problem


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, with a short name."""
    folder = Path(tempfile.mkdtemp(prefix="own-", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _filled(folder: RunFolder) -> dict[Path, tuple[int, bytes]]:
    program = folder.path / "backends/python/stub"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"program")
    program.chmod(0o700)
    (folder.path / "models").mkdir()
    (folder.path / "models/config.pbtxt").write_bytes(b"config")
    folder.keep()
    return _files(folder.path)


def _files(folder: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mode, path.read_bytes()) for path in files}


def test_what_a_cleaner_removes_is_written_again(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder()
    before = _filled(folder)
    assert not folder.restore()
    assert not capsys.readouterr().err
    for gone in (folder.path / "models/config.pbtxt", folder.path / "backends", folder.path, base):
        gone.unlink() if gone.is_file() else shutil.rmtree(gone)
        assert folder.restore()
        assert _files(folder.path) == before
        assert folder.path.stat().st_mode & 0o777 == 0o700
        assert "was deleted while it is in use" in capsys.readouterr().err
    # What a server makes there since is its own to keep.
    (folder.path / "socket").touch()
    assert not folder.restore()


def test_a_cleaner_that_looks_for_locks_finds_one(base: Path) -> None:
    """systemd-tmpfiles leaves a folder alone that it cannot lock."""
    folder = RunFolder()
    _filled(folder)
    for _ in range(2):
        descriptor = os.open(folder.path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        shutil.rmtree(folder.path)
        folder.restore()


def test_a_strangers_folder_of_its_name_is_not_used(base: Path) -> None:
    folder = RunFolder()
    _filled(folder)
    shutil.rmtree(folder.path)
    folder.path.mkdir()
    folder.path.chmod(0o777)
    with pytest.raises(ConfigurationError, match="can be written by others"):
        folder.restore()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a blank", "has ' '"),
        ("it's", 'has "\'"'),
        ("$HOME", r"has '\$'"),
        ("a\nb", r"has '\\n'"),
        ("ünï", r"has '\\xef' '\\xfc'"),
        ("x" * 40, r"has \d+ bytes; Unix sockets allow at most \d\d there"),
    ],
)
def test_a_folder_of_no_use_is_said_and_another_is_used(
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    problem: str,
) -> None:
    (base / name).mkdir()
    (base / "b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(base / name))
    monkeypatch.setattr(run_folder, "_INSTEAD", (str(base / "nowhere"), str(base / "b")))
    assert RunFolder().path.parent == base / "b"
    errors = capsys.readouterr().err
    assert errors.startswith("lmi-backend: TMPDIR ")
    assert re.search(problem, errors)
    assert f"; {base / 'b'} is used instead" in errors
    monkeypatch.setattr(run_folder, "_INSTEAD", (str(base / "nowhere"),))
    with pytest.raises(ConfigurationError, match="nowhere: cannot be written"):
        RunFolder()


def test_the_working_folder_is_named_from_the_root(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(base)
    monkeypatch.setattr(tempfile, "tempdir", os.curdir)
    assert RunFolder().path.parent == base


def test_the_longest_folder_that_is_used_has_room_for_each_socket(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "_INSTEAD", ())
    used = base
    for size in range(1, 60):
        longer = base / ("x" * size)
        longer.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(longer))
        try:
            RunFolder()
        except ConfigurationError:
            break
        used = longer
    run = used / "lmi-serve-12345678"
    names = (f"lmi-endpoints-{os.getuid()}/1234567-{'a' * 16}.sock", f"lmi-12345678/{'a' * 36}")
    assert max(len(f"{run}/{name}") for name in names) == 107


def test_plain_paths_are_for_any_shell() -> None:
    assert not shell_problem(Path("/opt/a-b_c.d/1,2:3=4@5%6+7^8"))


def test_a_folder_in_which_nothing_runs_is_the_last_choice(
    base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = base / "b"
    other.mkdir()
    monkeypatch.setattr(run_folder, "_INSTEAD", (str(other),))
    monkeypatch.setattr(run_folder, "is_noexec", lambda path: str(path) == str(base))
    assert RunFolder().path.parent == other
    assert f"TMPDIR {base}: is mounted noexec, and programs run there; {other} is used instead" in (
        capsys.readouterr().err
    )
    monkeypatch.setattr(run_folder, "is_noexec", lambda _: True)
    assert RunFolder().path.parent == base
    assert not capsys.readouterr().err
