"""Standard input, output and error of a command: each may be closed, or its reader may leave."""

from __future__ import annotations

import contextlib
import os
import sys


def open_missing() -> None:
    """Open the streams that the command was started without on /dev/null.

    Otherwise the next file or socket gets such a number, and a child writes its log there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
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
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def abandon_unread() -> None:
    """Send what is left of output that nobody reads to /dev/null.

    Python would write what is buffered at its end, fail, and change the exit status.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as null:
                os.dup2(null.fileno(), stream.fileno())
