"""End the stub and its workers when the server is gone.

A stub that loses its server calls C's exit(). With Python threads waiting inside a send that exit
never ends (seen on 24.10 after the server died of a signal), and workers live as long as their
stub's sockets. So a thread waits for the server's death and then ends everything itself.
"""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Time for the stub's own exit, which is the orderly way.
_GRACE_SECONDS = 1.0


class ServerGuard(threading.Thread):
    """Waits for the parent process, which is tritonserver; calls `kill_workers` when it is gone."""

    def __init__(self, kill_workers: Callable[[], None]) -> None:
        super().__init__(name="lmi-guard", daemon=True)
        self._kill_workers = kill_workers
        self._server = os.pidfd_open(os.getppid())

    def run(self) -> None:
        """Wait, which costs nothing, then end."""
        select.select([self._server], [], [])
        try:
            self._kill_workers()
            threading.Event().wait(_GRACE_SECONDS)
        finally:
            os._exit(1)
