import ctypes
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from lmi_backend.supervisor.enforced_umask import enforce_umask
from lmi_backend.supervisor.private_arguments import start_privately

# What a program is given, what others see of it, and what it inherits.
TEXT = """
import json, os, pathlib, sys
seen = pathlib.Path("/proc/self/cmdline").read_bytes().decode().split(chr(0))
print(json.dumps([sys.argv[1:], seen[3:-1]]))
"""


@pytest.mark.parametrize(
    ("word", "private", "real"),
    [("--key=***", {"KEY": "--key=***"}, "--key=abc def"), ("--two", {}, "--two")],
)
def test_the_program_gets_what_others_do_not_see(
    word: str, private: dict[str, str], real: str
) -> None:
    argv = [sys.executable, "-c", TEXT, "--one", word, "--three"]
    environment = {"FIRST": "1", "KEY": "--key=abc def", "LAST": "2"}
    with start_privately(argv, private, environment, lambda: None, stdout=-1) as process:
        assert process.stdout is not None
        given, seen = json.loads(process.stdout.read())
    assert process.returncode == 0
    assert given == ["--one", real, "--three"]
    assert seen == ["--one", word, "--three"]


def test_what_runs_before_runs_in_the_child() -> None:
    before = os.umask(0o022)
    os.umask(before)
    text = "import os; print(os.umask(0))"
    process = start_privately(
        [sys.executable, "-c", text], {}, {}, lambda: os.umask(0o077) and None, stdout=-1
    )
    with process:
        assert process.stdout is not None
        assert int(process.stdout.read()) == 0o077
    assert os.umask(before) == before


def test_a_program_that_is_not_there_is_said_to_be() -> None:
    with pytest.raises(FileNotFoundError):
        start_privately(["/no/such/program"], {}, {}, lambda: None)


def test_where_it_may_not_be_traced_nothing_runs() -> None:
    """As under a debugger, which traces it already: only one may."""

    def traced_already() -> None:
        # A traced process cannot ask for it again.
        ctypes.CDLL(None).ptrace(0, 0, None, None)

    with pytest.raises(PermissionError, match="ptrace is not permitted"):
        start_privately([sys.executable, "-c", "print(1)"], {}, {}, traced_already)


@pytest.mark.parametrize(
    ("call", "mode"),
    [
        ("os.fchmod(fd, 0o644)", 0o600),  # Boost's, which goes around the umask
        ("os.fchmod(fd, 0o640)", 0o640),
        ("os.chmod(path, 0o644)", 0o644),
        ("None", 0o600),
    ],
)
def test_the_umask_holds_against_boost_and_nobody_else(tmp_path: Any, call: str, mode: int) -> None:
    path = tmp_path / "region"
    text = f"import os; path = {str(path)!r}; fd = os.open(path, os.O_CREAT, 0o644); {call}"
    subprocess.run([sys.executable, "-c", text], preexec_fn=enforce_umask, check=True)
    assert path.stat().st_mode & 0o777 == mode
