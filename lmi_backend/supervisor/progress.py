"""Tell the user about progress."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Write a line to standard error, under the command's name."""
    sys.stderr.write(f"lmi-backend: {text}\n")
    sys.stderr.flush()
