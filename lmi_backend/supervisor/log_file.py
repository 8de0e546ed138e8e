"""Where the programs that `serve` starts log."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, Any

from lmi_backend.printable import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def log_options(log_file: Path | None) -> Iterator[dict[str, Any]]:
    """Give the options of `subprocess.Popen` by which a program logs to a file, or where we do.

    A file that cannot be opened any more is no reason not to start what serves.
    """
    with contextlib.ExitStack() as files:
        log = None
        if log_file:
            try:
                log = files.enter_context(open(log_file, "ab"))
            except OSError as error:
                say(f"--log-file {log_file}: {error.strerror}; the log goes to standard error")
        yield {
            "stdin": subprocess.DEVNULL,
            "stdout": log,
            "stderr": subprocess.STDOUT if log else None,
            # Its own session: Ctrl-C is ours to handle, the program must not hear it.
            "start_new_session": True,
            # SIGPIPE stays ignored: the reader of the log may leave.
            "restore_signals": False,
        }
