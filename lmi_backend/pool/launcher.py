"""Launch a worker: start its ranks, and let them connect."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lmi_backend.files import secure_caches
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.flush_policy import FlushPolicy
from lmi_backend.ipc.handshake import BACKLOG
from lmi_backend.plan.arguments import own_ports
from lmi_backend.pool.command import LaunchContext, worker_command
from lmi_backend.pool.launch import StartingWorker
from lmi_backend.pool.process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lmi_backend.plan import EnginePlan

_numbers = itertools.count()
"""Of the launches of this process."""


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
        start = start_message(plan, name, index, return_to)
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


def start_message(plan: EnginePlan, name: str, index: int, return_to: str) -> msg.Start:
    return msg.Start(
        plan.engine,
        own_ports(replace(plan.config, name=name.rpartition("/")[0]), index),
        _flush_policy(plan),
        hang_seconds=plan.launch.hang_timeout,
        largest_frame=plan.limits.max_message_size,
        load_seconds=plan.launch.load_timeout,
        return_to=return_to,
    )


def _flush_policy(plan: EnginePlan) -> FlushPolicy:
    cores, launch = len(os.sched_getaffinity(0)), plan.launch
    return FlushPolicy.of(cores, plan.parallel.workers, launch.stream_flush, launch.stream_interval)
