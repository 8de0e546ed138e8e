"""Kill the stub and its workers when tritonserver, the parent process, has died.

A stub that loses its server calls exit() of C. While Python threads wait inside a send, that exit
hangs. It was seen on 24.10 after the server died of a signal, and after it stopped waiting for
open connections. Workers live as long as the sockets of their stub. So a thread waits for the
server's death and kills them all, but those that the next stub may adopt. If another thread waits
for the dead server and holds the interpreter, that thread cannot run. Then a process outside of the
stub does it.
"""

from __future__ import annotations

import logging
import os
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from lmi_backend.threads import guarded_thread
from lmi_backend.triton import outside_guard

_log = logging.getLogger(__name__)

# Time for the stub's own exit, which is the orderly way.
_GRACE_SECONDS: Final = 1.0


class OrphanGuard:
    """Waits for the death of the server; then calls `kill_workers`, and kills the stub."""

    def __init__(self, kill_workers: Callable[[], None]) -> None:
        self._kill_workers = kill_workers
        self._server = os.pidfd_open(os.getppid())

    def start(self) -> None:
        guarded_thread("lmi-guard", self._run).start()

    def _run(self) -> None:
        # Not select, which takes no descriptor above 1023.
        ended = select.poll()
        ended.register(self._server, select.POLLIN)
        ended.poll()
        try:
            self._kill_workers()
            threading.Event().wait(_GRACE_SECONDS)
        finally:
            os._exit(1)


def start_outside_guard(model: str, files: Iterable[Path]) -> None:
    """Start the process that kills this stub if the server dies and the stub does not.

    `lmi-backend serve` does that too, but it may have been killed with its server.

    Args:
        model: what it is called in the log.
        files: what the server would remove after the stub's end.
    """
    # The stub's interpreter is embedded: it may know of no program.
    python = sys.executable or shutil.which("python3")
    if not python:
        _log.warning("%s: no python3 on PATH: if tritonserver dies, its stub may stay", model)
        return
    descriptors = os.pidfd_open(os.getppid()), os.pidfd_open(os.getpid())
    try:
        subprocess.Popen(  # noqa: S603  our own program
            [
                *(python, "-I", "-S", outside_guard.__file__),
                *map(str, descriptors),
                model,
                *map(str, files),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=descriptors,
            # Out of reach of a signal to the server's process group.
            start_new_session=True,
        )
    except OSError as error:
        _log.warning("%s: if tritonserver dies, its stub may stay: %s", model, error)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
