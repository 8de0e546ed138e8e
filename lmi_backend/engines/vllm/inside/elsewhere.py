"""Fast paths that vLLM's own processes turn off: a file brings them to the worker, which reports.

The worker names the file in a variable, which its processes inherit. Each of them appends a line
for a path. A line that cannot be written is left out: the process logs the same, and must not fail.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from lmi_backend.ipc.environment import GROUP_VARIABLE

_VARIABLE: Final = "LMI_BACKEND_LET_GO"
_LONGEST: Final = 2000
"""Characters of a reason; so a line is written at once."""


def share() -> None:
    """Have this process and those it starts report paths that are off to a worker.

    The file is in the worker's private folder, which is removed with it. Ranks on other machines
    have no such folder.
    """
    if folder := os.environ.get("TMPDIR"):
        path = Path(folder) / f"let-go-{os.environ.get(GROUP_VARIABLE) or os.getpid()}"
        if os.environ.get("RANK", "0") == "0":
            path.unlink(missing_ok=True)  # of a worker that died
        os.environ[_VARIABLE] = str(path)


def tell(name: str, reason: str) -> None:
    """Report to the worker a path that this process turns off."""
    if path := os.environ.get(_VARIABLE):
        line = " ".join([name, *reason[:_LONGEST].split(), f"(in process {os.getpid()})"])
        with suppress(OSError), open(path, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def reported() -> Mapping[str, str]:
    """Return each path that any of these processes has turned off, and the reason."""
    path = os.environ.get(_VARIABLE, "")
    try:
        size = os.stat(path).st_size if path else 0
    except OSError:  # nobody has let one go
        size = 0
    return _read(path, size) if size else {}


@lru_cache(maxsize=1)
def _read(path: str, size: int) -> Mapping[str, str]:
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path(path).read_bytes()[:size].decode(errors="replace").splitlines():
            name, _, reason = line.partition(" ")
            found.setdefault(name, reason)
    return found
