"""Launch a worker: start its ranks, let them connect, and wait until its engine is ready."""

from __future__ import annotations

import itertools
import logging
import math
import os
import secrets
import socket
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import msgspec

from lmi_backend.errors import (
    ConfigurationError,
    ConnectionLostError,
    OptionError,
    WorkerStartError,
)
from lmi_backend.files import secure_caches
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.ipc.frames import encode
from lmi_backend.ipc.handshake import BACKLOG, Handshakes
from lmi_backend.options.spec import CUSTOM
from lmi_backend.plan.hardware import memory_kills
from lmi_backend.pool.command import LaunchContext, worker_command
from lmi_backend.pool.diagnosis import likely_cause, with_root_cause
from lmi_backend.pool.load_failure import LAST_LINES, LIKELY, saved
from lmi_backend.pool.process import WorkerProcess, WorkerSession, describe_exit
from lmi_backend.pool.rank_group import POLL_SECONDS, Connection, Worker
from lmi_backend.printable import with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lmi_backend.ipc.survivor import Files
    from lmi_backend.plan import EnginePlan

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer", msg.Prepared, msg.Ready)
_numbers = itertools.count()


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
        self.may_return = bool(start.return_to)
        self._seconds = plan.launch.load_timeout if seconds is None else seconds
        self._end = time.monotonic() + self._seconds
        self._memory_kills = memory_kills()
        self.token = self.folder = ""
        """What it and the stub prove to know, and its private folder."""
        self.files: Files = ()
        """Those of the model when it was launched."""
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

    def ready(self) -> Worker:
        """Have it load the engine, and wait until that is ready; raises as `prepare` does."""
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
        return Worker(self._name, self._process, in_order, answers[0], shares_all=shares_all)

    def accept(self, listener: socket.socket, token: str) -> None:
        self.token = token
        connections, count = self.connections, self._plan.parallel.processes
        with Handshakes(listener, token, count) as handshakes:
            while len(connections) < count:
                self.check(handshakes.refusals)
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
            self.check()
        return heard

    def _hear(self, connection: Connection, kind: type[_Answer]) -> _Answer | None:
        try:
            messages = connection.read()
        except ConnectionLostError:
            self._process.wait(POLL_SECONDS)
            self.check()
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

    def check(self, refusals: str = "") -> None:
        """Raise WorkerStartError if there is nothing to wait for any more."""
        if (status := self._process.wait(0)) is not None:
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


def launch(  # noqa: PLR0913  settings by name
    plan: EnginePlan,
    index: int,
    *,
    name: str,
    folder: Path,
    on_line: Callable[[str], None],
    is_cancelled: Callable[[], bool] = lambda: False,
    return_to: str = "",
) -> StartingWorker:
    """Start the process, or the ranks, of worker `index` of a plan, which loads nothing yet.

    Args:
        folder: private folder for its socket, with the package in it (`link_package`).
        on_line: gets each line it prints.
        is_cancelled: polled; True cancels the start.
        return_to: where the next stub finds it if this one dies; empty if none may.

    Raises:
        ConfigurationError: a cache is somebody else's.
        WorkerStartError: it exited, or did not connect in time; quotes its last lines.
    """
    token = secrets.token_hex(16)
    with ExitStack() as stack:
        number = next(_numbers)
        socket_file = folder / f"{index}-{number}.sock"
        listener, address = stack.enter_context(listen(plan, socket_file))
        port = stack.enter_context(_reserved_port(is_needed=plan.parallel.processes > 1))
        context = LaunchContext(index, folder, address, token, port, number)
        command = worker_command(plan, context, os.environ)
        secure_caches(command.environment)
        start = start_message(plan, name, return_to)
        launched = StartingWorker(plan, name, WorkerProcess(command, on_line), start, is_cancelled)
        launched.folder = str(folder)
        try:
            launched.accept(listener, token)
        except BaseException:
            launched.kill()
            raise
        launched.listening = stack.pop_all()
    return launched


@contextmanager
def listen(plan: EnginePlan, path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Listen where all ranks can connect; give the address as `--connect` takes it."""
    if plan.parallel.hosts:
        with socket.create_server((plan.parallel.hosts[0], 0), backlog=BACKLOG) as listener:
            host, port = listener.getsockname()[:2]
            yield listener, f"{host}:{port}"
        return
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(BACKLOG)
        try:
            yield listener, str(path)
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _reserved_port(*, is_needed: bool) -> Iterator[int]:
    """Give a port at which the ranks find each other, 0 for one rank alone.

    Seconds pass until rank 0 listens there. Meanwhile no connection gets a port that is bound. As
    nobody listens and both sides set SO_REUSEADDR, as TCPStore does, rank 0 may bind it.
    """
    if not is_needed:
        yield 0
        return
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("", 0))
        yield keeper.getsockname()[1]


def start_message(plan: EnginePlan, name: str, return_to: str) -> msg.Start:
    return msg.Start(
        plan.engine,
        replace(plan.config, name=name.rpartition("/")[0]),
        _flush_policy(plan),
        hang_seconds=plan.launch.hang_timeout,
        largest_frame=plan.limits.max_message_size,
        load_seconds=plan.launch.load_timeout,
        return_to=return_to,
    )


def _flush_policy(plan: EnginePlan) -> FlushPolicy:
    cores, launch = len(os.sched_getaffinity(0)), plan.launch
    return FlushPolicy.of(cores, plan.parallel.workers, launch.stream_flush, launch.stream_interval)
