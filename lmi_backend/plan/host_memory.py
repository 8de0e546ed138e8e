"""How much memory the machine has, and what is left of it, or of its container's limit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

_ROOT: Final = Path("/")


class _Files(NamedTuple):
    """How a version of Linux's control groups names the memory of a group."""

    mount: str
    limit: str
    used: str
    cached: str
    """The entry of `memory.stat` that counts the cache of files that nobody has used lately."""
    events: str
    """The file that counts processes which the kernel has killed for want of memory."""


# Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux 6.1.
_VERSION_2: Final = _Files(
    "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "memory.events"
)
_VERSION_1: Final = _Files(
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
    "memory.oom_control",
)
_MACHINE: Final = "proc/vmstat"
"""Counts them for the whole machine."""


class HostMemory(NamedTuple):
    """Bytes of memory, each 0 if unknown."""

    total: int
    """Of the machine, even where a container has a limit."""
    available: int
    """What this process may still take. What the kernel keeps of files counts as available."""


def host_memory(root: Path = _ROOT) -> HostMemory:
    """Return the machine's memory, and what is left of it, or of a container's limit."""
    try:
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        total, available = (
            int(sizes[name].removesuffix(" kB")) << 10 for name in ("MemTotal", "MemAvailable")
        )
    except (OSError, ValueError, KeyError):
        return HostMemory(0, 0)
    return HostMemory(total, max(0, min([available, *_left(root)])))


def memory_kills(root: Path = _ROOT) -> int:
    """Return how many processes of this container the kernel has killed for want of memory.

    Where no group counts them, the machine does; 0 if that is not known either.
    """
    files = [folder / names.events for folder, names in _groups(root)]
    for file in (*files, root / _MACHINE):
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(
                dict(line.split() for line in file.read_text("ascii").splitlines())["oom_kill"]
            )
    return 0


def _left(root: Path) -> Iterator[int]:
    """Yield what is left of the limit of each group that holds this process."""
    for folder, files in _groups(root):
        with contextlib.suppress(OSError, ValueError, KeyError):
            limit = int((folder / files.limit).read_text("ascii"))  # "max" is no number
            used = int((folder / files.used).read_text("ascii"))
            lines = (folder / "memory.stat").read_text("ascii").splitlines()
            counts = dict(line.split() for line in lines)
            yield limit - used + int(counts[files.cached])


def _groups(root: Path) -> Iterator[tuple[Path, _Files]]:
    """Yield the folder of this process's group and of each group above it, of either version.

    A container without a namespace for groups has the machine's path of its group, and that
    group's files at the top: a folder that is not there is passed over.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text("utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            files = _VERSION_1 if controllers else _VERSION_2
            own = PurePosixPath(path.lstrip("/"))
            for group in (own, *own.parents):
                yield root / files.mount / group, files
