"""What a database of advisories answers, and the programs that ask one."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SECONDS: Final = 600


class AuditError(Exception):
    """Why advisories could not be asked for."""


@dataclass(frozen=True)
class Answer:
    advisories: list[str]
    """A line on each that concerns a locked package."""
    unasked: list[str]
    """Packages that were not asked for, as name==version."""


def run(words: Sequence[str], where: Path | None = None) -> str:
    """Return what a program writes; one that has found something ends with 1.

    Raises:
        AuditError: it wrote nothing.
    """
    try:
        done = subprocess.run(
            words, cwd=where, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise AuditError(str(error)) from error
    if done.returncode and not done.stdout.strip():
        last = done.stderr.strip().rpartition("\n")[2]
        raise AuditError(f"{Path(words[0]).name}: {last or f'exit status {done.returncode}'}")
    return done.stdout
