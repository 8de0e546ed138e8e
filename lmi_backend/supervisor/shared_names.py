"""Names of shared memory that no other server has, also one in a container that shares /dev/shm."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.ipc.shared_memory import SHARED_MEMORY

if TYPE_CHECKING:
    from pathlib import Path

_OWNER: Final = "owner"
"""Suffix of a file that is locked as long as a process has memory of its prefix."""


@dataclass(frozen=True)
class SharedNames:
    """A prefix of names in /dev/shm, random: process ids are the same in each container."""

    prefix: str
    lock: int
    """Descriptor to hand to those who use the names."""

    @classmethod
    def claim(cls) -> SharedNames:
        """Return a prefix that no shared memory has yet; shared memory must be there."""
        while True:
            prefix = f"lmi_{secrets.token_hex(8)}_"
            path = SHARED_MEMORY / f"{prefix}{_OWNER}"
            try:
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                # Waits for another server that has found it before it was locked.
                fcntl.flock(lock, fcntl.LOCK_SH)
            except OSError as error:
                message = f"{SHARED_MEMORY}: cannot be used: {error.strerror}"
                raise ConfigurationError(message) from error
            if path.exists():
                return cls(prefix, lock)
            os.close(lock)

    def remove(self) -> None:
        """Remove the memory of all who used the names."""
        _remove(self.prefix, but=_OWNER)

    def give_back(self) -> None:
        """Remove everything; the names are not used any more."""
        _remove(self.prefix)


def remove_abandoned() -> None:
    """Remove the memory of servers of this user that were killed with all their processes."""
    for path in SHARED_MEMORY.glob(f"lmi_*_{_OWNER}"):
        with contextlib.suppress(OSError):
            _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid == os.getuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path.name.removesuffix(_OWNER))
    finally:
        os.close(descriptor)


def _remove(prefix: str, but: str = "") -> None:
    for region in SHARED_MEMORY.glob(f"{prefix}*"):
        # Another user may make a file of such a name, which we cannot remove.
        with contextlib.suppress(OSError):
            if region.name != f"{prefix}{but}":
                region.unlink()
