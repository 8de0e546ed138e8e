"""An interpreter that seems to have a release of an engine's library."""

from __future__ import annotations

import json
from pathlib import Path


def interpreter(folder: Path, package: Path, version: str = "") -> str:
    """Return an interpreter that says where a package is, and that it imports a version of it."""
    return script(
        folder / "python",
        f'case "$2" in *__version__*) [ "$3" = {package.name} ] && echo version {version};;\n'
        f"*) echo '{json.dumps([str(package)])}';; esac",
    )


def script(path: Path, text: str) -> str:
    """Write a program of the shell."""
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def with_version(package: Path, version: str) -> Path:
    """Make a package that says its version and nothing else."""
    package.mkdir(parents=True)
    for name in ("_version.py", "version.py"):
        (package / name).write_text(f'__version__ = version = "{version}"\n', encoding="utf-8")
    return package
