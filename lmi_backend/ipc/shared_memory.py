"""Shared memory of engines, whose processes are killed: what they had in /dev/shm would stay there.

The memory of ranks has the name of their group; any other is found by who maps it.
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
    inodes = {inode for pid in pids for inode in _mapped(pid)}
    files = SHARED_MEMORY.iterdir() if inodes else ()
    return {path for path in files if _inode(path) in inodes}


def remove_unmapped(paths: Iterable[Path]) -> None:
    """Remove files in /dev/shm, but those that a living process maps."""
    if left := {path for path in paths if path.exists()}:
        running = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
        for path in left - mapped_shared_memory(running):
            with contextlib.suppress(OSError):
                path.unlink()


def _mapped(pid: int) -> set[int]:
    """Return inodes: a semaphore is mapped by a name that glibc has removed since."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return set()
    # Address, permissions, offset, device and inode come before the path; it may hold blanks.
    parts = (line.split(maxsplit=5) for line in lines if f" {SHARED_MEMORY}/" in line)
    return {int(inode) for _, _, _, _, inode, _ in parts}


def _inode(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_ino
    return 0
