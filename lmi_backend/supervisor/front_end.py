"""Keep front ends up beside the server: processes of their own, which outlive the server's."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Final

from lmi_backend.pool.process import describe_exit
from lmi_backend.printable import log, say
from lmi_backend.supervisor.log_file import log_options
from lmi_backend.supervisor.reloading import Backoff
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

PROGRAM: Final = "lmi_backend.cli.main"
"""The module that it runs; with the word `frontend`."""
LIBRARIES: Final = ("uvicorn", "uvloop", "httptools", "starlette", "aiohttp")
"""What the extra `frontend` brings."""
DRAIN: Final = signal.SIGUSR1
"""Tells a front end that the server stops: requests that have not begun are refused."""
_LOOK_SECONDS: Final = 0.2
# As long as a server may be silent (health.py).
_SILENT_SECONDS: Final = 30.0
_BEATS: Final = 4096
_STOP_SECONDS: Final = 10.0
_KILL_SECONDS: Final = 5.0


def missing_libraries() -> list[str]:
    """Return which of its libraries this environment lacks."""
    return [name for name in LIBRARIES if importlib.util.find_spec(name) is None]


class FrontEnds:
    """Processes of `lmi-backend frontend` that share a port.

    One that ends, or says nothing for 30 s, is started again, with growing pauses. It says that it
    is well through a pipe and not on its port: which of them answers there is chance, and a port
    that has no place for another connection is no reason to cut those that it has.

    Args:
        arguments: of the command.
        count: of processes.
        secrets: in their environment, which only their own user reads.
        log_file: gets their log; None for our own.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        count: int,
        secrets: Mapping[str, str],
        log_file: Path | None = None,
    ) -> None:
        command = [sys.executable, "-m", PROGRAM, "frontend", *arguments, f"--share={count}"]
        start = partial(_BeatingProcess, command, secrets, log_file)
        self._kept = [_Kept(start) for _ in range(count)]

    def keep(
        self,
        wait_for_end: Callable[[float], bool],
        stop_seconds: float,
        is_urgent: Callable[[], bool],
    ) -> None:
        """Keep them up until the end; then they have some seconds to let requests end.

        Args:
            wait_for_end: waits for some seconds, and returns whether the end has come.
            stop_seconds: of these.
            is_urgent: whether they are not to have them.
        """
        while not wait_for_end(_LOOK_SECONDS):
            for each in self._kept:
                each.look()
        for each in self._kept:
            each.send(signal.SIGTERM)
        end = time.monotonic() + stop_seconds
        while time.monotonic() < end and not is_urgent():
            if not any(each.is_running for each in self._kept):
                break
            time.sleep(_LOOK_SECONDS / 4)
        for each in self._kept:
            each.stop()

    def drain(self) -> None:
        """Have new requests refused, on connections that are then closed."""
        for each in self._kept:
            each.send(DRAIN)


@contextlib.contextmanager
def front_ends(
    arguments: Sequence[str],
    count: int,
    secrets: Mapping[str, str],
    log_file: Path | None = None,
    *,
    is_urgent: Callable[[], bool],
) -> Iterator[FrontEnds]:
    """Run front ends until the end of the block, when the models have drained.

    At the end they have some seconds to let requests end, unless it `is_urgent`.
    """
    ended = threading.Event()
    kept = FrontEnds(arguments, count, secrets, log_file)
    keep = partial(kept.keep, ended.wait, _STOP_SECONDS, is_urgent)
    keeper = guarded_thread("lmi-front-end", keep)
    keeper.start()
    try:
        yield kept
    finally:
        ended.set()
        keeper.join()


class _Kept:
    """One of them, and the next that takes its place."""

    def __init__(self, start: Callable[[], _BeatingProcess]) -> None:
        self._start, self._backoff = start, Backoff()
        self._start_at = 0.0
        self._process: _BeatingProcess | None = start()

    @property
    def is_running(self) -> bool:
        process = self._process
        return process is not None and process.is_running

    def look(self) -> None:
        """Start it again if it has ended, once the pause is over.

        A fault of our own is one of the front end: its keeper must not end.
        """
        try:
            self._look()
        except Exception:  # noqa: BLE001
            log(traceback.format_exc())
            self.stop()
            self._process = None
            self._put_off("cannot be watched")

    def _look(self) -> None:
        if self._process is not None:
            if trouble := self._process.trouble():
                process, self._process = self._process, None
                process.stop()
                self._put_off(trouble, process.age)
        elif time.monotonic() >= self._start_at:
            try:
                self._process = self._start()
            except OSError as error:
                self._put_off(f"cannot be started: {error}")

    def _put_off(self, trouble: str, well_seconds: float = 0.0) -> None:
        pause = self._backoff.pause(well_seconds)
        say(f"the front end {trouble}: it is started again in {pause:.0f} s")
        self._start_at = time.monotonic() + pause

    def send(self, number: signal.Signals) -> None:
        # The thread that keeps it up may find that it has ended.
        if (process := self._process) is not None:
            process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()


class _BeatingProcess:
    """A process that writes a byte a second into a pipe."""

    def __init__(
        self, command: Sequence[str], secrets: Mapping[str, str], log_file: Path | None
    ) -> None:
        self._beats, theirs = os.pipe()
        os.set_blocking(self._beats, False)
        try:
            words = [*command, f"--heartbeat={theirs}"]
            self._process = _start(words, secrets, theirs, log_file)
        except OSError:
            os.close(self._beats)
            raise
        finally:
            os.close(theirs)
        self._began = self._heard_at = time.monotonic()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def age(self) -> float:
        """Seconds between its start and its last beat."""
        return self._heard_at - self._began

    def trouble(self) -> str:
        """Return what is wrong with it, empty if nothing is."""
        if (status := self._process.poll()) is not None:
            return describe_exit(status)
        # At the end of file it has closed the pipe, and is heard no more.
        with contextlib.suppress(BlockingIOError):
            if os.read(self._beats, _BEATS):
                self._heard_at = time.monotonic()
        is_silent = time.monotonic() - self._heard_at > _SILENT_SECONDS
        return f"said nothing for {_SILENT_SECONDS:.0f} s and is ended" if is_silent else ""

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """End it at once."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)
        os.close(self._beats)


def _start(
    command: Sequence[str], secrets: Mapping[str, str], pipe: int, log_file: Path | None
) -> subprocess.Popen[bytes]:
    # In its own session it serves until the models have drained.
    with log_options(log_file) as options:
        environment = {**os.environ, **secrets, "PYTHONSAFEPATH": "1"}
        return subprocess.Popen(  # noqa: S603
            command, env=environment, pass_fds=(pipe,), **options
        )
