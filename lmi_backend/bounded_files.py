"""Read small files that somebody else wrote: a sparse one of 20 GB, or a pipe, is an error."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from lmi_backend.units import MIB, human_bytes

if TYPE_CHECKING:
    from pathlib import Path

LARGEST: Final = 64 * MIB
"""Bytes; the index of a large model's weights has ten million."""


def read_bounded(path: Path, most: int = LARGEST) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than `most` bytes.
    """
    # A pipe is not waited for.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        data = file.read(most + 1)
    if len(data) > most:
        problem = f"is too large; accepted: at most {human_bytes(most)}"
        raise OSError(errno.EFBIG, problem, str(path))
    return data
