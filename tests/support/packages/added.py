"""A copy of the package that has something more, and Python that runs there."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.run.places import ROOT, TESTS

Run = Callable[..., subprocess.CompletedProcess[str]]


def added(root: Path, more: Path) -> Run:
    """Copy the package with the modules in a folder; return what runs Python there."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "lmi_backend", root / "lmi_backend", ignore=ignored)
    files = {path.relative_to(more) for path in more.rglob("*.py")}
    assert not [path for path in files if (root / "lmi_backend" / path).exists()]
    shutil.copytree(more, root / "lmi_backend", ignore=ignored, dirs_exist_ok=True)
    (root / "tests").symlink_to(TESTS)
    paths = {"PYTHONPATH": f"{root}{os.pathsep}{ROOT / 'tools'}", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=root,
            env=dict(os.environ) | paths,
            capture_output=True,
            text=True,
            check=False,
        )

    return run
