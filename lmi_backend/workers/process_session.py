"""A session of processes: who is in it, and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

# A resource tracker needs milliseconds; one that hangs is not waited for.
_TRACKER_SECONDS = 2.0
_POLL_SECONDS = 0.02


def kill_session(leader: int) -> None:
    """End every process of a session, and let their shared memory be freed.

    The session, not the process group: mpirun gives each rank a group of its own.
    Python's resource trackers are left for last: one removes the shared memory of the processes it
    serves as soon as they are gone, and then ends by itself. Killed with them, it would leave it.
    """
    end = time.monotonic() + _TRACKER_SECONDS
    while (members := _members(leader)) and time.monotonic() < end:
        for pid in members:
            if not _is_tracker(pid):
                _kill(pid)
        time.sleep(_POLL_SECONDS)
    for pid in _members(leader):
        _kill(pid)


def _members(leader: int) -> list[int]:
    """Return the living processes of a session."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_alive_in(entry, leader)
    ]


def _is_alive_in(entry: Path, leader: int) -> bool:
    try:
        # The name, in parentheses, may hold blanks: fields count from the last one.
        state, _, _, session = (
            (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:4]
        )
    except (OSError, ValueError):
        return False
    return int(session) == leader and state not in "ZX"


def _is_tracker(pid: int) -> bool:
    try:
        return b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
