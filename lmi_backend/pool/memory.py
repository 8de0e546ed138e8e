"""How much memory processes of this one may still take."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

_GROUP: Final = Path("/sys/fs/cgroup")
"""Of this process, as a container sees it; control groups, version 2."""


def available_memory(group: Path = _GROUP) -> int:
    """Return the bytes that the machine has left, or the container, where it has a limit.

    What the kernel keeps of files that nobody uses counts as left.
    """
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    sizes = dict(line.split(":", 1) for line in lines)
    available = int(sizes["MemAvailable"].removesuffix(" kB")) << 10
    with contextlib.suppress(OSError, ValueError, KeyError):
        limit = int((group / "memory.max").read_text("ascii"))  # "max" is no number
        used = int((group / "memory.current").read_text("ascii"))
        lines = (group / "memory.stat").read_text("ascii").splitlines()
        counts = dict(line.split() for line in lines)
        available = min(available, limit - used + int(counts["inactive_file"]))
    return available
