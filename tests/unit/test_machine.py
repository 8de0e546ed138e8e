"""What a machine lacks, and how to install what is missing."""

import errno
import re
import resource
import subprocess
import threading

import pytest

from lmi_backend.cli import main as command
from lmi_backend.errors import ConfigurationError
from lmi_backend.machine import check_limits, machine_problem, pip_command
from tests.support.run.places import ROOT


@pytest.mark.parametrize("extra", ["server", "frontend", "mpi"])
def test_the_command_names_what_the_extra_brings(extra: str) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (declared,) = re.findall(rf"^{extra} = \[(.+)\]$", text, re.MULTILINE)
    command = pip_command(extra).strip("`")
    words = subprocess.run(
        ["sh", "-c", f'for word in {command}; do echo "$word"; done'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    assert words[:2] == ["pip", "install"]
    assert set(words[2:]) - {""} == set(re.findall(r'"([^"]+)"', declared))


def test_nothing_tells_people_to_install_what_is_on_no_index() -> None:
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("deploy/*.md")]
    files += (ROOT / "lmi_backend").rglob("*.py")
    wrong = re.compile(
        r"pip install [\"']?lmi-backend\b(?!\[extra\])|(?<!`pip install )lmi-backend\["
    )
    found = [str(path) for path in files if wrong.search(path.read_text(encoding="utf-8"))]
    assert len(files) > 200
    assert found == []


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError(errno.ENOSPC, "No space left", "/a", None, "/b"), "/b: No space left"),
        (OSError(errno.EROFS, "Read-only", "/a"), "/a: Read-only"),
        (BlockingIOError(errno.EAGAIN, "Resource unavailable"), "Resource unavailable"),
        (MemoryError(), "no memory is left"),
        (OSError(errno.ENOTDIR, "Not a directory", "/a"), ""),
        (RuntimeError("another"), ""),
        (KeyError("a"), ""),
    ],
)
def test_a_limit_is_told_and_a_fault_is_not(error: Exception, problem: str) -> None:
    assert machine_problem(error) == problem


def test_a_command_that_meets_a_limit_says_so_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/full")

    monkeypatch.setattr(command.serve, "_check", fail)
    monkeypatch.setattr(command.serve, "leave_init_behind", lambda: None)
    assert command.main(["serve", "."]) == 1
    assert capsys.readouterr().err == "lmi-backend: /full: No space left on device\n"


def test_too_few_threads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    check_limits()
    before, start = threading.active_count(), threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if threading.active_count() - before >= 5:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(ConfigurationError, match=r"^5 more threads can be started, and a server"):
        check_limits()
    assert threading.active_count() == before


def test_too_few_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 4096))
    with pytest.raises(ConfigurationError, match=r"^64 files may be open, and a server needs 128;"):
        check_limits()
