import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

DEEP = "def f():\n for a in b:\n  if a:\n   with a:\n    while a:\n     pass\n"
ELIF = "def f():\n if a:\n  pass\n elif b:\n  pass\n elif c:\n  pass\n elif d:\n  pass\n"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("long.py", "\n" * 301, "file of 301 lines (300)"),
        ("f.py", "def f():\n" + " pass\n" * 50, "f: 51 lines (50)"),
        ("p.py", "def f(self, a, b, c, d, e, g, h): ...\n", "f: 7 positional parameters (6)"),
        ("deep.py", DEEP, "f: nested 4 deep (3)"),
        ("utils.py", "", "says nothing"),
        ("fine.py", f"def f(a, *, b, c, d, e, g, h): ...\n{ELIF}", ""),
    ],
)
def test_sizes(tmp_path: Path, name: str, text: str, what: str) -> None:
    (tmp_path / name).write_text(text)
    done = run("tools/check_size.py", str(tmp_path))
    assert done.returncode == (1 if what else 0)
    assert what in done.stdout


def test_the_reference_pages_are_made_from_the_code() -> None:
    done = run("tools/make_docs.py", "--check")
    assert (done.returncode, done.stdout) == (0, "")


def test_an_old_python_is_refused_in_one_line() -> None:
    code = "import sys; sys.version_info = (3, 8, 0); sys.argv = ['install.py', 'server']; "
    code += "import runpy; runpy.run_path('tools/install.py', run_name='__main__')"
    done = run("-c", code)
    assert done.returncode == 1
    assert "is Python 3.8; accepted: 3.11 or 3.12" in done.stderr
