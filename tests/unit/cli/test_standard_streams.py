"""Streams that are closed, or whose reader has left."""

import subprocess
import sys
from pathlib import Path

import pytest

CLOSED = """
import os, subprocess, sys
from lmi_backend.cli.standard_streams import open_missing
open_missing()
sys.stdout.write("lost")
sys.stderr.write("lost")
opened = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
# A child's log must not get into what was opened since.
subprocess.run(["sh", "-c", "echo out; echo err >&2"], check=True)
os.write(opened, f"{opened} {sys.stdin.read()!r}".encode())
"""
READER_LEFT = """
import sys
from lmi_backend.cli.standard_streams import show
sys.stdin.read()
for _ in range(3):
    show("x" * 10_000)
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


def test_output_goes_on_when_its_reader_has_left() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READER_LEFT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
