"""Shared memory of engines, whose processes are killed: what they had in /dev/shm would stay there.

That of ranks has the name of their group; any other is told by who maps it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  where Linux has it


def remove_shared_memory(group: str) -> None:
    """Remove what a group has left; processes that still use it keep it."""
    for path in SHARED_MEMORY.glob(f"{group}-*") if group else ():
        with contextlib.suppress(OSError):
            path.unlink()


def mapped_shared_memory(pids: Iterable[int]) -> set[Path]:
    """Return the files in /dev/shm that processes map, of those that live and may be read."""
    return {path for pid in pids for path in _mapped(pid)}


def remove_unmapped(paths: Iterable[Path]) -> None:
    """Remove files in /dev/shm, but those that a living process maps."""
    if left := {path for path in paths if path.exists()}:
        running = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
        for path in left - mapped_shared_memory(running):
            with contextlib.suppress(OSError):
                path.unlink()


def _mapped(pid: int) -> set[Path]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    # Address, permissions, offset, device and inode come before the path; it may hold blanks.
    paths = (line.split(maxsplit=5)[5:] for line in lines if str(SHARED_MEMORY) in line)
    return {Path(path) for (path,) in paths if path.startswith(f"{SHARED_MEMORY}/")}
