"""Close or report what tritonserver, the parent process, leaves open, and end with it.

A stub that loses its server calls C's exit(). With Python threads waiting inside a send that exit
never ends (seen on 24.10 after the server died of a signal), and workers live as long as their
stub's sockets. So the orphan guard, a thread, waits for the server's death and then ends all.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lmi_backend.ipc.shared_memory import SHARED_MEMORY
from lmi_backend.repository.restricted_apis import exposures

_log = logging.getLogger(__name__)

_ADVICE: Final = "deploy/README.md of lmi-backend has the arguments; `lmi-backend serve` sets them"
# Time for the stub's own exit, which is the orderly way.
_GRACE_SECONDS: Final = 1.0


def close_shared_memory() -> None:
    """Let only this user read the memory in which the stub's requests lie.

    Triton makes it readable for all. Its name is an argument of the stub's command line.
    """
    names = (name for name in _argv(Path("/proc/self")) if name and "/" not in name)
    for region in (SHARED_MEMORY / name for name in names):
        if region.is_file():
            region.chmod(0o600)


def warn_of_exposures(model: str) -> None:
    """Log what the server was started without, and so leaves open to who is no client."""
    try:
        argv = _argv(Path(f"/proc/{os.getppid()}"))
    except OSError as error:
        _log.warning("%s: what tritonserver leaves open cannot be told: %s", model, error)
        return
    # The server's environment is what the stub has inherited.
    for sentence in exposures(argv, os.environ):
        _log.warning("%s: %s; %s", model, sentence, _ADVICE)


def _argv(process: Path) -> list[str]:
    return (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")


class OrphanGuard(threading.Thread):
    """Waits for the death of the server; then calls `kill_workers`, and ends the stub."""

    def __init__(self, kill_workers: Callable[[], None]) -> None:
        super().__init__(name="lmi-guard", daemon=True)
        self._kill_workers = kill_workers
        self._server = os.pidfd_open(os.getppid())

    def run(self) -> None:
        """Wait, which costs nothing, then end the process."""
        select.select([self._server], [], [])
        try:
            self._kill_workers()
            threading.Event().wait(_GRACE_SECONDS)
        finally:
            os._exit(1)
