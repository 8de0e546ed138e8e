"""Shared memory of a group of ranks: a name for it, by which its leftovers are found.

Ranks are killed, and what they had in /dev/shm stays there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  where Linux has it


def remove_shared_memory(group: str) -> None:
    """Remove what a group has left; processes that still use it keep it."""
    for path in SHARED_MEMORY.glob(f"{group}-*") if group else ():
        with contextlib.suppress(OSError):
            path.unlink()
