"""A worker whose process runs and whose engine is not ready: one that starts, or a spare."""

from __future__ import annotations

import logging
import math
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

import msgspec

from lmi_backend.errors import (
    ConfigurationError,
    ConnectionLostError,
    OptionError,
    WorkerStartError,
)
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import encode
from lmi_backend.ipc.handshake import Handshakes
from lmi_backend.options.spec import CUSTOM
from lmi_backend.plan.hardware import memory_kills
from lmi_backend.pool.connection import POLL_SECONDS, Connection
from lmi_backend.pool.diagnosis import likely_cause, with_root_cause
from lmi_backend.pool.load_failure import LAST_LINES, LIKELY, saved
from lmi_backend.pool.process import describe_exit
from lmi_backend.pool.rank_group import RankGroup, Worker
from lmi_backend.printable import with_options

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from lmi_backend.plan import EnginePlan
    from lmi_backend.pool.session import WorkerSession

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer", msg.Prepared, msg.Ready)


class StartingWorker:
    """A worker that is being started, or a spare.

    Args:
        is_cancelled: polled; True cancels the start.
        seconds: for it to be ready; None for the plan's.
    """

    def __init__(
        self,
        plan: EnginePlan,
        name: str,
        process: WorkerSession,
        start: msg.Start,
        is_cancelled: Callable[[], bool],
        seconds: float | None = None,
    ) -> None:
        self._plan, self._name, self._process = plan, name, process
        self._start, self._is_cancelled = start, is_cancelled
        self._seconds = plan.launch.load_timeout if seconds is None else seconds
        self._end = time.monotonic() + self._seconds
        self._memory_kills = memory_kills()
        self.token = self.folder = ""
        """What it and the stub prove to know, and its private folder."""
        self.connections: dict[int, Connection] = {}
        self._proceed: msg.Proceed | None = None
        """What a spare waits for."""
        self.listening = ExitStack()
        """Closes the socket and the port that it needs until it is ready."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def shared(self) -> list[str]:
        """Files in shared memory that its engine uses, once it is ready."""
        return sorted(map(str, self._process.shared))

    @property
    def may_return(self) -> bool:
        return bool(self._start.return_to)

    def _send(self, message: msg.ToWorker) -> None:
        frame = encode([message])
        for connection in self.connections.values():
            connection.send(frame)

    def kill(self) -> None:
        self._process.kill()
        for connection in self.connections.values():
            connection.close()
        self.listening.close()

    def prepare(self, *, loads: bool = False) -> None:
        """Have it do all that takes no memory of a device; it stays so until `ready`.

        Args:
            loads: whether it takes no device, and is to load the engine too.

        Raises:
            ConfigurationError: the engine refuses an option.
            WorkerStartError: it exited or was not prepared in time; quotes its last lines.
        """
        self._send(msgspec.structs.replace(self._start, is_spare=True, loads=loads))
        self._proceed = msg.Proceed()
        self.wait_for_all(msg.Prepared)
        self._end = math.inf

    def check_process(self) -> None:
        """Raise WorkerStartError if its process has exited."""
        self._check()

    def ready(self) -> Worker:
        """Have it load the engine, and wait until that is ready.

        Raises:
            ConfigurationError: the engine refuses an option.
            WorkerStartError: it exited or was not ready in time; quotes its last lines.
        """
        try:
            self._end = time.monotonic() + self._seconds
            self._send(self._proceed or self._start)
            answers = self.wait_for_all(msg.Ready)
            self._process.note_shared_memory()
        except BaseException:
            self.kill()
            raise
        self.listening.close()
        in_order = [self.connections[rank] for rank in range(self._plan.parallel.processes)]
        # The user's own code has no other way to learn on every rank what is asked.
        shares_all = self._plan.engine == CUSTOM
        ranks = RankGroup(in_order, self._process.pid, shares_all=shares_all)
        return Worker(self._name, self._process, ranks, answers[0])

    def accept(self, listener: socket.socket, token: str) -> None:
        self.token = token
        connections, count = self.connections, self._plan.parallel.processes
        with Handshakes(listener, token, count) as handshakes:
            while len(connections) < count:
                self._check(handshakes.refusals)
                for rank, sock in handshakes.turn(POLL_SECONDS):
                    connections[rank] = Connection(sock, self._plan.limits.max_message_size)
        # Nobody connects while the engine loads.
        listener.close()
        if handshakes.refusals:
            _log.warning("while the worker connected, %s", handshakes.refusals)

    def wait_for_all(self, kind: type[_Answer]) -> dict[int, _Answer]:
        heard: dict[int, _Answer] = {}
        while len(heard) < len(self.connections):
            for rank, connection in self.connections.items():
                if rank not in heard and (message := self._hear(connection, kind)):
                    heard[rank] = message
            self._check()
        return heard

    def _hear(self, connection: Connection, kind: type[_Answer]) -> _Answer | None:
        try:
            messages = connection.read()
        except ConnectionLostError:
            self._process.wait(POLL_SECONDS)
            self._check()
            raise
        for message in messages:
            match message:
                case msg.StartFailed(message=text, option=option) if option:
                    raise OptionError(self._process.redact(text), option=option, origin="engine")
                case msg.StartFailed(message=text):
                    lines = self._process.all_lines()
                    advice = self._advice(f"{text}\n{lines}")
                    text = with_options(self._process.redact(with_root_cause(text, lines)))
                    raise ConfigurationError(text + advice + saved(self._name, lines))
                case _ if isinstance(message, kind):
                    return message
                case _:
                    pass
        return None

    def _check(self, refusals: str = "") -> None:
        """Raise WorkerStartError if there is nothing to wait for any more."""
        if (status := self._process.poll()) is not None:
            problem = f"the worker {describe_exit(status)} before it was ready"
        elif time.monotonic() > self._end:
            problem = f"the worker was not ready within {self._seconds} s"
            if self._seconds == self._plan.launch.load_timeout:
                problem += " (option.model_loading_timeout)"
        elif self._is_cancelled():
            raise WorkerStartError("the start was cancelled: the server is stopping")
        else:
            return
        if refusals:
            problem += f"; {refusals}"
        lines = self._process.last_lines()
        all_lines = self._process.all_lines()
        problem += self._advice(all_lines) + saved(self._name, all_lines)
        raise WorkerStartError(f"{problem}{LAST_LINES}{lines}")

    def _advice(self, words: str) -> str:
        cause = likely_cause(words, memory_kills=memory_kills() - self._memory_kills)
        return f"{LIKELY}{cause}" if cause else ""
