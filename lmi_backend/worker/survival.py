"""What a worker does whose stub has died: it waits for the next stub of the same `serve`.

So no engine is loaded again for the death of a stub, or of its server. The worker is written down
(`ipc/survivor.py`). Without that, or if its `serve` is gone too, it stops. Meanwhile it reads the
pipe into which it and its engine print, for a process hangs that prints into a full one.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import stat
import termios
import threading
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import LmiError, WorkerError
from lmi_backend.ipc.handshake import join
from lmi_backend.ipc.survivor import RETURN_SECONDS, Place, is_served
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.worker.conversation import Conversation
    from lmi_backend.worker.starting import StartedEngine


_STDOUT: Final = 1
_LOOK_SECONDS: Final = 0.05
# fcntl.F_GETPIPE_SZ, which Python has from 3.10 on.
_PIPE_SIZE: Final = 1032


class OwnOutput:
    """An end for reading of this process's standard output, if that is a pipe."""

    def __init__(self, number: int = _STDOUT) -> None:
        self._end = -1
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self._end = os.open(f"/proc/self/fd/{number}", flags)

    @property
    def is_writable(self) -> bool:
        """Whether what is printed fails for nobody once there is no other reader."""
        return self._end >= 0

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        """Take out what does not fit while the block runs.

        In a thread of its own: this process may hang in its own printing.
        """
        ended = threading.Event()
        thread = guarded_thread("lmi-own-output", lambda: self._make_room(ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _make_room(self, ended: threading.Event) -> None:
        most = fcntl.fcntl(self._end, _PIPE_SIZE) // 2
        while not ended.wait(_LOOK_SECONDS):
            waiting = array.array("i", [0])
            fcntl.ioctl(self._end, termios.FIONREAD, waiting)
            # The next stub gets the rest.
            if waiting[0] > most:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._end, waiting[0])


_log = logging.getLogger(__name__)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_SHORT_LIFE: Final = 10.0
"""Of a stub that took this worker over: one that dies sooner may have died of it."""


class Survival:
    """The ways of a worker from one stub to the next."""

    def __init__(self, token: str, rank: int) -> None:
        self._token, self._rank = token, rank
        self._output = OwnOutput()
        self._since = time.monotonic()
        """When it came to its stub."""

    async def next_stub(self, conversation: Conversation) -> Streams | None:
        """Wait for the next stub after a conversation, and connect to it.

        Returns:
            None if the worker is to end.
        """
        loaded = conversation.loaded
        if not conversation.is_orphan or loaded is None or not loaded.start.return_to:
            return None
        conversation.close_connection()
        place = Place(loaded.start.return_to)
        if problem := self._problem(place, loaded):
            _log.info("the worker does not wait for the next stub: %s", problem)
            return None
        _log.info("the worker waits up to %.0f s for the next stub", RETURN_SECONDS)
        end = time.monotonic() + RETURN_SECONDS
        with self._output.flowing():
            streams = await self._wait(place, loaded, _stopping(), end)
        self._since = time.monotonic()
        if streams is None and _is_written(place):
            place.clear()
        return streams

    async def _wait(
        self, place: Place, loaded: StartedEngine, stopping: asyncio.Event, end: float
    ) -> Streams | None:
        while not stopping.is_set():
            problem = self._problem(place) or await _sickness(loaded)
            if not problem and time.monotonic() > end:
                problem = "none has come"
            if problem:
                _log.info("the worker stops: %s", problem)
                return None
            if place.socket.exists():
                try:
                    return await self._join(place, stopping, end)
                except (OSError, WorkerError) as error:
                    _log.info("the next stub cannot be reached: %s", error)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stopping.wait(), _LOOK_SECONDS)
        return None

    async def _join(self, place: Place, stopping: asyncio.Event, end: float) -> Streams | None:
        joining = asyncio.create_task(join(str(place.socket), self._token, self._rank))
        stop = asyncio.create_task(stopping.wait())
        seconds = max(0.0, end - time.monotonic())
        await asyncio.wait({joining, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if joining.done():
            return joining.result()
        joining.cancel()
        return None

    def _problem(self, place: Place, loaded: StartedEngine | None = None) -> str:
        """Return why no stub will take this worker; empty if one may.

        Args:
            loaded: the engine, if its stub has just died.
        """
        if loaded and loaded.is_taken_over and time.monotonic() - self._since < _SHORT_LIFE:
            return "the last one died soon after it had taken this worker over"
        if not self._output.is_writable:
            return "its output is no pipe"
        if not _is_written(place):
            return "this worker is not written down"
        return "" if is_served(place.socket.parent) else "its `serve` is gone"


def _is_written(place: Place) -> bool:
    """Tell whether it is this process that is written down there."""
    record = place.read()
    return record is not None and record.worker.pid == os.getpid()


async def _sickness(loaded: StartedEngine) -> str:
    try:
        await loaded.rank.check_health()
    except LmiError as error:
        return str(error)
    return ""


def _stopping() -> asyncio.Event:
    """Return what is set by a signal to end this process."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    return stopping
