"""What a worker prints, as the stub's log gets it."""

import sys

import pytest

from lmi_backend.pool.command import WorkerCommand
from lmi_backend.pool.process import WorkerProcess


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("'x' * 1_000_000", "x" * 8192 + "… (65536 characters)"),
        ("'a\\x1b[2Jb\\u202e'", "a\\x1b[2Jb\\u202e"),
        ("'10 %\\r' * 100_000 + '100 %'", "100 %"),
        ("'x' * 8150 + ' hf_' + 'A' * 40", "x" * 8150 + " ***"),
    ],
    ids=["long", "escape", "progress", "secret at the cut"],
)
def test_a_line_is_cut_and_escaped(printed: str, line: str) -> None:
    code = f"import sys; sys.stdout.reconfigure(encoding='utf-8'); print({printed})"
    lines: list[str] = []
    process = WorkerProcess(WorkerCommand((sys.executable, "-c", code), {}), lines.append)
    assert process.wait(60) == 0
    assert process.last_lines() == line
    assert lines == [line]
    process.kill()
