"""Standard input, output and error of a command: each may be closed, or its reader may leave."""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_missing() -> None:
    """Open the streams that the command was started without on /dev/null.

    Otherwise the next file or socket gets such a number, and a child writes its log there.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
            # Children get it as well.
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def abandon_output() -> None:
    """Send the rest of standard output to /dev/null: its reader has left.

    Python would write what is buffered at its end, fail, and change the exit status.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def show(text: str) -> None:
    """Write a text to standard output, for a command that does not end when nobody reads it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, ValueError):
        abandon_output()
