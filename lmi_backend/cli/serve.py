"""`lmi-backend serve`: from LMI folders to a running, and cleanly stopped, Triton server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_backend.cli.doors import add_clients
from lmi_backend.cli.folders import Model, find_models
from lmi_backend.cli.generate import print_stream
from lmi_backend.cli.planning import served_plan
from lmi_backend.errors import UnavailableError
from lmi_backend.repository.writer import write_door, write_model
from lmi_backend.supervisor.installation import find_server
from lmi_backend.supervisor.ports import Ports
from lmi_backend.supervisor.progress import say
from lmi_backend.supervisor.server import RunningServer
from lmi_backend.supervisor.triton_http import TritonHttp

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from lmi_backend.repository.entries import Entry

_PROGRESS_SECONDS = 5.0
_POLL_SECONDS = 0.2
_MOST_TROUBLES = 5
_TROUBLE_SECONDS = 600.0


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "serve",
        help="serve LMI folders on Triton until Ctrl-C",
        description="Serve LMI folders on Triton. Ctrl-C or SIGTERM lets running requests finish "
        "and then stops everything; a second one stops at once. If the server or a model's stub "
        "dies or hangs, the server is started again, up to five times in ten minutes.",
    )
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="LMI folder or model store; default: what SERVING_LOAD_MODELS or /opt/ml/model holds",
    )
    parser.add_argument(
        "--model-repository",
        type=Path,
        help="keep the Triton model folders here; default: none kept",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--http-port", type=int, default=8000, help="default %(default)s")
    parser.add_argument("--grpc-port", type=int, default=8001, help="default %(default)s")
    parser.add_argument("--metrics-port", type=int, default=8002, help="default %(default)s")
    parser.add_argument(
        "--drain-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time running requests have to finish when stopping (default %(default)s)",
    )
    add_clients(parser)
    parser.add_argument("--log-file", type=Path, help="write Triton's log here, not to stderr")
    parser.add_argument("--example", metavar="PROMPT", help="when ready, stream this answer")
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    ports = Ports(arguments.host, arguments.http_port, arguments.grpc_port, arguments.metrics_port)
    ports.check()
    with _run_folder() as run, _stop_signals() as stop:
        repository = arguments.model_repository or run / "models"
        models = find_models(arguments.paths, os.environ, repository)
        names = [name for model in models for name in _write(model, repository, arguments.clients)]
        start = partial(
            RunningServer,
            find_server(run),
            repository,
            names,
            ports,
            run=run,
            log_file=arguments.log_file,
        )
        troubles: list[float] = []
        while True:
            trouble, status = _run(start(), names, ports, stop, arguments, is_first=not troubles)
            if not trouble or stop.is_set():
                return status
            _count_trouble(trouble, troubles)


def _run(
    server: RunningServer,
    names: list[str],
    ports: Ports,
    stop: threading.Event,
    arguments: argparse.Namespace,
    *,
    is_first: bool,
) -> tuple[str, int]:
    """Run a server until the user stops it or it is in trouble; return which, and its status."""
    trouble = ""
    try:
        if _wait_until_ready(server, names, ports, stop):
            server.make_room()
            if is_first:
                _greet(names, ports, arguments.example)
            trouble = server.watch(stop.is_set)
            why = trouble or "stopping"
            say(f"{why}: waiting for running requests; Ctrl-C again to stop at once")
            if not trouble:
                stop.clear()
            if cut := server.drain(arguments.drain_timeout, stop.is_set):
                say(f"{cut} requests took longer than --drain-timeout and got an error")
    finally:
        status = server.stop(gently=not trouble)
    return trouble, status


def _count_trouble(trouble: str, troubles: list[float]) -> None:
    """Let a server in trouble be started again.

    Raises:
        UnavailableError: that would be too often.
    """
    now = time.monotonic()
    troubles.append(now)
    lately = sum(now - each < _TROUBLE_SECONDS for each in troubles)
    if lately > _MOST_TROUBLES:
        message = (
            f"{trouble}, the {lately}th trouble in {_TROUBLE_SECONDS / 60:.0f} minutes: given up"
        )
        raise UnavailableError(message)
    say(f"{trouble}: the server is started again")


def _write(model: Model, repository: Path, doors: list[Entry]) -> list[str]:
    options, _ = served_plan(model.folder)
    write_model(model.folder, repository, model.name, options, force=True)
    for door in doors:
        write_door(repository, model.name, door.clients, options, force=True)
    return [model.name, *(door.model_name(model.name) for door in doors)]


@contextlib.contextmanager
def _run_folder() -> Iterator[Path]:
    """Give a private folder for sockets and links, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="lmi-serve-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_until_ready(
    server: RunningServer, names: list[str], ports: Ports, stop: threading.Event
) -> bool:
    """Wait for every model; return False if the user stops first.

    Raises:
        UnavailableError: the server ended.
    """
    client = TritonHttp(ports.url, timeout=5.0)
    began = said = time.monotonic()
    for name in names:
        while client.status(f"/v2/models/{name}/ready") != 200:
            if stop.wait(_POLL_SECONDS):
                return False
            server.check()
            if time.monotonic() - said > _PROGRESS_SECONDS:
                said = time.monotonic()
                say(f"starting {name}: {said - began:.0f} s")
    say(f"ready after {time.monotonic() - began:.0f} s: {', '.join(names)} at {ports.url}")
    return True


def _greet(names: list[str], ports: Ports, example: str | None) -> None:
    prompt = example or "The capital of France is"
    if example is not None:
        sys.stdout.write(f"\n{prompt}")
        print_stream(TritonHttp(ports.url), names[0], prompt, {"max_new_tokens": 20})
    body = json.dumps({"inputs": prompt, "parameters": {"max_new_tokens": 20}})
    url = f"{ports.url}/v2/models/{names[0]}/generate"
    sys.stdout.write(f"\nTry next:\n  curl -s {url} -d '{body}'\n")
    sys.stdout.flush()
