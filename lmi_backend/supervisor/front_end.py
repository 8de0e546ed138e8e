"""The processes of the front end, which report through a pipe that they are well."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.front_end_settings import LEAVES, VARIABLE, encode, listen
from lmi_backend.pool.process import describe_exit
from lmi_backend.printable import log as log_text
from lmi_backend.printable import say
from lmi_backend.supervisor.log_relay import STANDARD_ERROR, log_options
from lmi_backend.supervisor.reloading import Backoff
from lmi_backend.threads import guarded_thread, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmi_backend.front_end_settings import Settings


PROGRAM: Final = "lmi_backend.frontend.main"
# As long as a server may be silent (health.py).
SILENT_SECONDS: Final = 30.0
_BEATS: Final = 4096
_KILL_SECONDS: Final = 5.0


class BeatingProcess:
    """A process that writes a byte a second into a pipe, and logs on a descriptor."""

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
        if (status := self._process.poll()) is not None:
            return describe_exit(status)
        # At the end of file it has closed the pipe, and is heard no more.
        with contextlib.suppress(BlockingIOError):
            if beats := os.read(self._beats, _BEATS):
                self._heard_at = time.monotonic()
                self.leaves = self.leaves or LEAVES in beats
        is_silent = time.monotonic() - self._heard_at > SILENT_SECONDS
        return f"sent nothing for {SILENT_SECONDS:.0f} s and is stopped" if is_silent else ""

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
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


DRAIN: Final = signal.SIGUSR1
"""Tells a front end that the server stops: requests that have not begun are refused."""
_LOOK_SECONDS: Final = 0.2
_STOP_SECONDS: Final = 10.0
_LONGEST_WAIT_SECONDS: Final = 4.0
"""Pause up to which clients wait for the next front end; in a longer one they are refused."""


class FrontEnds:
    """Processes of the front end that share a port.

    A process that exits, or reports nothing for 30 s, is started again, with growing pauses. It
    reports its health through a pipe and not on its port, for two reasons. Chance decides which
    process answers there. And a port without room for another connection is no reason to cut its
    connections. One that accepts no more connections finishes its requests while the next serves.
    """

    def __init__(self, settings: Settings, log: int = STANDARD_ERROR) -> None:
        every = [replace(settings, place=place) for place in range(settings.processes)]
        self._runs = [Restarted(each, log) for each in every]

    def keep(
        self,
        wait_for_end: Callable[[float], bool],
        stop_seconds: float,
        is_urgent: Callable[[], bool],
    ) -> None:
        """Keep them up until the end; then they have `stop_seconds` to let requests end."""
        while not wait_for_end(_LOOK_SECONDS):
            for each in self._runs:
                each.look()
        for each in self._runs:
            each.end()
        runs = self._runs
        wait_until(lambda: is_urgent() or not any(each.is_running for each in runs), stop_seconds)
        for each in runs:
            each.stop()

    def drain(self) -> None:
        """Have new requests refused, on connections that are then closed."""
        for each in self._runs:
            each.send(DRAIN)


@contextlib.contextmanager
def front_ends(
    settings: Settings, log: int = STANDARD_ERROR, *, is_urgent: Callable[[], bool]
) -> Iterator[FrontEnds]:
    """Run front ends until the end of the block, when the models have drained.

    At the end they have some seconds to let requests end, unless it `is_urgent`.
    """
    ended = threading.Event()
    processes = FrontEnds(settings, log)
    keep = partial(processes.keep, ended.wait, _STOP_SECONDS, is_urgent)
    keeper = guarded_thread("lmi-front-end", keep)
    keeper.start()
    try:
        yield processes
    finally:
        ended.set()
        keeper.join()


class Restarted:
    """One of them, those before it that finish their requests, and the socket that listens.

    The socket outlives a front end: clients wait for the next one. Of several front ends each has
    its own, and the kernel spreads the connections over these.
    """

    def __init__(self, settings: Settings, log: int) -> None:
        self._settings, self._log, self._backoff = settings, log, Backoff()
        self._start_at = 0.0
        self._socket: socket.socket | None = None
        self._processes: list[BeatingProcess] = []
        """At most one of them accepts connections."""
        self.look()

    @property
    def is_running(self) -> bool:
        return any(each.is_running for each in self._processes)

    def look(self) -> None:
        """Start it again if it has exited, once the pause is over.

        An unexpected exception here counts as one of the front end: its keeper must not stop.
        """
        try:
            self._look()
        except Exception:  # noqa: BLE001
            log_text(traceback.format_exc())
            self.stop()
            self._put_off("cannot be watched")

    def _look(self) -> None:
        for each in [*self._processes]:
            if problem := each.problem():
                self._processes.remove(each)
                each.stop()
                if not each.leaves:
                    self._put_off(problem, each.age)
                    return
        if time.monotonic() >= self._start_at and all(each.leaves for each in self._processes):
            try:
                process = BeatingProcess(self._settings, self._log, self._open().fileno())
                self._processes.append(process)
            except (OSError, ConfigurationError) as error:
                self._put_off(f"cannot be started: {error}")

    def _put_off(self, problem: str, well_seconds: float = 0.0) -> None:
        pause = self._backoff.pause(well_seconds)
        say(f"the front end {problem}: it is started again in {pause:.0f} s", "WARNING")
        if pause > _LONGEST_WAIT_SECONDS:
            self._refuse()
        self._start_at = time.monotonic() + pause

    def _open(self) -> socket.socket:
        if self._socket is None:
            of = self._settings
            self._socket = listen(of.host, of.port, is_shared=of.processes > 1)
        return self._socket

    def _refuse(self) -> None:
        """Refuse connections from now on, unless a front end accepts them."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def end(self) -> None:
        self._refuse()
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        # The thread that keeps it up may find that it has ended.
        for each in [*self._processes]:
            each.send_signal(number)

    def stop(self) -> None:
        for each in self._processes:
            each.stop()
        self._processes = []
