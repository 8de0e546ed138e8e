"""Which Python may install."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_an_old_python_is_refused_in_one_line() -> None:
    code = "import sys; sys.version_info = (3, 8, 0); sys.argv = ['install.py', 'server']; "
    code += "import runpy; runpy.run_path('tools/install.py', run_name='__main__')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is Python 3.8; accepted: 3.11 or 3.12" in done.stderr
