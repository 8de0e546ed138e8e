"""Start a worker: launch its ranks, let them connect, give them the engine, wait."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lmi_backend.errors import (
    ConfigurationError,
    ConnectionLostError,
    OptionError,
    WorkerStartError,
)
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.ipc.frames import encode
from lmi_backend.ipc.handshake import BACKLOG, Handshakes
from lmi_backend.options.engine_spec import CUSTOM, implementations
from lmi_backend.plan.ports import own_ports
from lmi_backend.pool.command import LaunchContext, worker_command
from lmi_backend.pool.connection import POLL_SECONDS, Connection
from lmi_backend.pool.diagnosis import likely_cause
from lmi_backend.pool.process import WorkerProcess, describe_exit
from lmi_backend.pool.rank_group import RankGroup, Worker
from lmi_backend.private_folders import secure_caches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from lmi_backend.plan import EnginePlan

_log = logging.getLogger(__name__)


def start_worker(
    plan: EnginePlan,
    index: int,
    *,
    name: str,
    folder: Path,
    on_line: Callable[[str], None],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Worker:
    """Start worker `index` of a plan and return it once its engine is ready.

    Args:
        folder: private folder for its socket, with the package in it (`link_package`).
        on_line: gets each line it prints.
        is_cancelled: polled; True ends the start.

    Raises:
        ConfigurationError: the engine refuses an option, or a cache is somebody else's.
        WorkerStartError: the worker ended or was not ready in time; quotes its last lines.
    """
    token = secrets.token_hex(16)
    with _listen(plan, folder / f"{index}.sock") as (listener, address):
        port = _free_port() if plan.parallel.processes > 1 else 0
        context = LaunchContext(index, folder, address, token, port)
        command = worker_command(plan, context, os.environ)
        secure_caches(command.environment, _default_caches(plan, command.environment))
        process = WorkerProcess(command, on_line)
        start = _Start(plan, process, time.monotonic() + plan.launch.load_timeout, is_cancelled)
        connections: dict[int, Connection] = {}
        try:
            start.accept(listener, token, connections)
            frame = encode([_start_message(plan, name.rpartition("/")[0], index)])
            for connection in connections.values():
                connection.send(frame)
            capabilities = start.await_ready(connections)
            process.note_shared_memory()
        except BaseException:
            process.kill()
            for connection in connections.values():
                connection.close()
            raise
    in_order = [connections[rank] for rank in range(plan.parallel.processes)]
    # The user's own code has no other way to learn on every rank what is asked.
    ranks = RankGroup(in_order, process.pid, shares_all=plan.engine == CUSTOM)
    return Worker(name, process, ranks, capabilities)


@dataclass(frozen=True)
class _Start:
    """A worker that is being started."""

    plan: EnginePlan
    process: WorkerProcess
    end: float
    is_cancelled: Callable[[], bool]

    def accept(
        self, listener: socket.socket, token: str, connections: dict[int, Connection]
    ) -> None:
        """Wait until every rank has connected; `connections` gets them by rank."""
        with Handshakes(listener, token, self.plan.parallel.processes) as handshakes:
            while len(connections) < self.plan.parallel.processes:
                self._check(handshakes.refusals)
                for rank, sock in handshakes.turn(POLL_SECONDS):
                    connections[rank] = Connection(sock, self.plan.limits.max_message_size)
        # Nobody connects while the engine loads.
        listener.close()
        if handshakes.refusals:
            _log.warning("while the worker connected, %s", handshakes.refusals)

    def await_ready(self, connections: Mapping[int, Connection]) -> Capabilities:
        """Wait until every rank is ready; return what rank 0 says of the engine."""
        ready: dict[int, Capabilities] = {}
        while len(ready) < len(connections):
            for rank, connection in connections.items():
                if rank not in ready and (said := self._hear(connection)):
                    ready[rank] = said
            self._check()
        return ready[0]

    def _hear(self, connection: Connection) -> Capabilities | None:
        try:
            messages = connection.read()
        except ConnectionLostError:
            self.process.wait(POLL_SECONDS)
            self._check()
            raise
        for message in messages:
            match message:
                case msg.Ready(capabilities=capabilities):
                    return capabilities
                case msg.StartFailed(message=text, option=option) if option:
                    raise OptionError(self.process.redact(text), option=option, origin="engine")
                case msg.StartFailed(message=text):
                    advice = _advice(f"{text}\n{self.process.last_lines()}")
                    raise ConfigurationError(self.process.redact(text) + advice)
                case _:
                    pass
        return None

    def _check(self, refusals: str = "") -> None:
        """Raise WorkerStartError if there is nothing to wait for any more."""
        if (status := self.process.poll()) is not None:
            problem = f"the worker {describe_exit(status)} before it was ready"
        elif time.monotonic() > self.end:
            seconds = self.plan.launch.load_timeout
            problem = f"the worker was not ready within {seconds} s (option.model_loading_timeout)"
        elif self.is_cancelled():
            raise WorkerStartError("the start was given up: the server is stopping")
        else:
            return
        if refusals:
            problem += f"; {refusals}"
        lines = self.process.last_lines()
        raise WorkerStartError(f"{problem}{_advice(lines, status)}. Its last lines:\n{lines}")


def _default_caches(plan: EnginePlan, environment: Mapping[str, str]) -> dict[str, str]:
    """Return owner and folder of what the engine keeps where no variable says otherwise."""
    implementation = implementations().get(plan.engine)
    cache = implementation.cache if implementation else None
    return {} if cache is None or environment.get(cache.variable) else {cache.owner: cache.default}


@contextmanager
def _listen(plan: EnginePlan, path: Path) -> Iterator[tuple[socket.socket, str]]:
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


def _free_port() -> int:
    """Return a port for the ranks to find each other; taken only a moment later."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


def _advice(words: str, status: int | None = None) -> str:
    cause = likely_cause(words, status)
    return f"; likely cause: {cause}" if cause else ""


def _start_message(plan: EnginePlan, model: str, index: int) -> msg.Start:
    return msg.Start(
        plan.engine,
        own_ports(replace(plan.config, name=model), index),
        _flush_policy(plan),
        hang_seconds=plan.launch.hang_timeout,
        largest_frame=plan.limits.max_message_size,
        load_seconds=plan.launch.load_timeout,
    )


def _flush_policy(plan: EnginePlan) -> FlushPolicy:
    cores, launch = len(os.sched_getaffinity(0)), plan.launch
    return FlushPolicy.of(cores, plan.parallel.workers, launch.stream_flush, launch.stream_interval)
