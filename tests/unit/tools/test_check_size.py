"""The house numbers."""

from pathlib import Path

import check_size
import pytest

DEEP = "def f():\n for a in b:\n  if a:\n   with a:\n    while a:\n     pass\n"
WAIT = "import asyncio\ntry: ...\n"
ELIF = "def f():\n if a:\n  pass\n elif b:\n  pass\n elif c:\n  pass\n elif d:\n  pass\n"


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("long.py", "\n" * 701, "file of 701 lines (700)"),
        ("f.py", "def f():\n" + " pass\n" * 50, "f: 51 lines (50)"),
        ("p.py", "def f(self, a, b, c, d, e, g, h): ...\n", "f: 7 positional parameters (6)"),
        ("deep.py", DEEP, "f: nested 4 deep (3)"),
        ("utils.py", "", "says nothing"),
        ("wait.py", f"{WAIT}except TimeoutError: ...\n", "another class"),
        ("both.py", f"{WAIT}except (TimeoutError, asyncio.TimeoutError): ...\n", ""),
        ("fine.py", f"def f(a, *, b, c, d, e, g, h): ...\n{ELIF}", ""),
    ],
)
def test_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, what: str
) -> None:
    (tmp_path / name).write_text(text)
    assert check_size.main([str(tmp_path)]) == (1 if what else 0)
    assert what in capsys.readouterr().out
