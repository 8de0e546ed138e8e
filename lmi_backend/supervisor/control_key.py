"""The key of Triton's restricted APIs."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from lmi_backend.errors import ConfigurationError

# What an HTTP header and an argument of Triton hold without quoting.
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{16,256}")
_ACCEPTED: Final = "16 to 256 letters, digits, and _ . -"


def new_key() -> str:
    return secrets.token_hex(32)


def read_key(path: Path, *, is_made: bool = True) -> str:
    """Return the key in a file; where there is no file, write a new one if `is_made`.

    Raises:
        ConfigurationError: others may read the file, or it does not hold a key.
    """
    if not is_made:
        return _read(path)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise ConfigurationError(f"{path} (--control-key): {error.strerror}") from error
    key = new_key()
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{key}\n")
    return key


def _read(path: Path) -> str:
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read(1024).strip()
    except OSError as error:
        raise ConfigurationError(f"{path} (--control-key): {error.strerror}") from error
    # A mounted secret is often readable to a group; to everybody it is none.
    if stat.S_IMODE(mode) & 0o007:
        message = f"{path} (--control-key): all users may read it; accepted: mode 0600 or 0640"
        raise ConfigurationError(message)
    if not _KEY.fullmatch(key):
        raise ConfigurationError(f"{path} (--control-key): accepted in it: {_ACCEPTED}")
    return key
