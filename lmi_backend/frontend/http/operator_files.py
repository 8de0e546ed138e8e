"""Files of the operator that are read again while requests run; no request waits for them."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES: Final = 1 << 20
Stamp = tuple[int, ...]


def stamp_of(path: Path) -> Stamp | None:
    """Return what differs after any change, also of a link on the way; None without a file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def content_of(option: str, path: Path) -> bytes:
    """Return what a file holds.

    Raises:
        ConfigurationError: it is no file, too large, or cannot be read.
    """
    try:
        status = path.stat()
        # A pipe would keep its reader waiting.
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path} ({option}): accepted: a file")
        if status.st_size > MOST_BYTES:
            text = f"{path} ({option}) has {status.st_size} bytes; accepted: at most {MOST_BYTES}"
            raise ConfigurationError(text)
        with path.open("rb") as file:
            return file.read(MOST_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{path} ({option}): {error.strerror}") from error


def text_of(option: str, path: Path) -> str:
    """Return the text that a file holds; raises like `content_of`, and for what is not UTF-8."""
    data = content_of(option, path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"{path}:{line} ({option}): byte {data[error.start]:#04x}; accepted: UTF-8"
        raise ConfigurationError(message) from error
