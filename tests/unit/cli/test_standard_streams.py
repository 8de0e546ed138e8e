"""Streams that are closed, or whose reader has left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CLOSED = """
import os, subprocess, sys
from lmi_backend.cli.main import open_missing
open_missing()
sys.stdout.write("lost")
sys.stderr.write("lost")
opened = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
# A child's log must not get into what was opened since.
subprocess.run(["sh", "-c", "echo out; echo err >&2"], check=True)
os.write(opened, f"{opened} {sys.stdin.read()!r}".encode())
"""
READERS_LEFT = """
import contextlib, sys
from lmi_backend.cli.main import abandon_unread
from lmi_backend.printable import say
sys.stdin.read()
for _ in range(3):
    say("x" * 10)
with contextlib.suppress(BrokenPipeError):
    sys.stdout.write("unread")
abandon_unread()
"""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "<&-", ">&-", "2>&-", "<&- 2>&-"])
def test_a_closed_stream_is_dev_null(tmp_path: Path, closed: str) -> None:
    result = tmp_path / "result"
    shell = f'exec "$0" -c "$1" "$2" {closed}'
    words = [sys.executable, CLOSED, str(result)]
    subprocess.run(
        ["sh", "-c", shell, *words], check=True, input="", capture_output=True, text=True
    )
    assert result.read_text() == "3 ''"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_ends_well_when_its_readers_have_left(unbuffered: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READERS_LEFT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()
        process.communicate(b"")
    # 120 is Python's own for output that it could not write.
    assert process.returncode == 0
