"""A process of the front end, which reports through a pipe that it is well."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.front_end_settings import LEAVES, VARIABLE, encode
from lmi_backend.pool.process import describe_exit
from lmi_backend.supervisor.log_relay import log_options

if TYPE_CHECKING:
    import signal

    from lmi_backend.front_end_settings import Settings

PROGRAM: Final = "lmi_backend.frontend.main"
"""The module that a front end runs."""
# As long as a server may be silent (health.py).
SILENT_SECONDS: Final = 30.0
_BEATS: Final = 4096
_KILL_SECONDS: Final = 5.0


class BeatingProcess:
    """A process that writes a byte a second into a pipe.

    Args:
        settings: of the front end.
        log: the descriptor on which it logs.
        listener: the descriptor of the socket that listens.
    """

    def __init__(self, settings: Settings, log: int, listener: int) -> None:
        self._beats, theirs = os.pipe()
        os.set_blocking(self._beats, False)
        try:
            self._process = _start(settings, log, theirs, listener)
        except OSError:
            os.close(self._beats)
            raise
        finally:
            os.close(theirs)
        self._began = self._heard_at = time.monotonic()
        self.leaves = False
        """Whether it accepts no more connections, and exits when it has answered."""

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def age(self) -> float:
        """Seconds between its start and its last beat."""
        return self._heard_at - self._began

    def problem(self) -> str:
        """Return what is wrong with it, empty if nothing is."""
        if (status := self._process.poll()) is not None:
            return describe_exit(status)
        # At the end of file it has closed the pipe, and is heard no more.
        with contextlib.suppress(BlockingIOError):
            if beats := os.read(self._beats, _BEATS):
                self._heard_at = time.monotonic()
                self.leaves = self.leaves or LEAVES in beats
        is_silent = time.monotonic() - self._heard_at > SILENT_SECONDS
        return f"said nothing for {SILENT_SECONDS:.0f} s and is stopped" if is_silent else ""

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it has not exited."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """End it at once."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)
        os.close(self._beats)


def _start(settings: Settings, log: int, pipe: int, listener: int) -> subprocess.Popen[bytes]:
    # The environment is read by its own user only; the run folder is what `Traces` looks for.
    environment = {**os.environ, VARIABLE: encode(settings), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", PROGRAM, str(settings.base), str(listener), str(pipe)]
    # In its own session it serves until the models have drained.
    return subprocess.Popen(  # noqa: S603
        command, env=environment, pass_fds=(pipe, listener), **log_options(log)
    )
