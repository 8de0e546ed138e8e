"""`lmi-backend serve`: from LMI folders to a running, and cleanly stopped, Triton server."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_backend.cli.aliases import add_clients, describe_aliases, model_names
from lmi_backend.cli.arguments import add_ports, comma_list, ports_of
from lmi_backend.cli.folders import Model, find_models
from lmi_backend.cli.frontend import (
    add_front_end_arguments,
    certificate_of,
    exposure,
    front_end_words,
)
from lmi_backend.cli.generate import print_stream
from lmi_backend.cli.planning import served_plans
from lmi_backend.errors import ConfigurationError, LmiError
from lmi_backend.extras import pip_command
from lmi_backend.printable import say
from lmi_backend.repository.restricted_apis import (
    HEADER,
    KEY_VARIABLES,
    NOT_FOR_CLIENTS,
    Restriction,
)
from lmi_backend.repository.writer import write_alias_model, write_model
from lmi_backend.supervisor.control_key import new_key, read_key
from lmi_backend.supervisor.front_end import FrontEnds, front_ends, missing_libraries
from lmi_backend.supervisor.guard import guarded
from lmi_backend.supervisor.installation import find_server
from lmi_backend.supervisor.ports import Ports, check_free, wait_until_well
from lmi_backend.supervisor.server import ServerSetup
from lmi_backend.supervisor.supervisor import Supervisor
from lmi_backend.supervisor.traces import Traces
from lmi_backend.supervisor.triton_http import TritonHttp
from lmi_backend.supervisor.triton_release import describe, installed_version, numpy_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmi_backend.options import LmiOptions
    from lmi_backend.repository.variants import Alias


_FRONT_END_SECONDS = 20.0


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "serve",
        help="serve LMI folders on Triton until Ctrl-C",
        description="Serve LMI folders on Triton. Ctrl-C or SIGTERM lets running requests finish "
        "and then stops everything; a second one stops at once. If the server or a model's stub "
        "dies or hangs, the server is started again, with growing pauses if that happens often. "
        "Triton's APIs that are not for clients, such as loading models, need a key.",
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
    add_front_end_arguments(parser)
    parser.add_argument(
        "--no-frontend",
        action="store_true",
        help="do not start the front end: Triton's own ports only",
    )
    add_ports(parser, "address on which Triton's own ports listen")
    parser.add_argument(
        "--drain-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time running requests have to finish when stopping (default %(default)s)",
    )
    _add_protection(parser)
    add_clients(parser)
    parser.add_argument("--log-file", type=Path, help="write Triton's log here, not to stderr")
    parser.add_argument("--example", metavar="PROMPT", help="when ready, stream this answer")
    parser.set_defaults(run=_serve)


def _add_protection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-failure",
        choices=("restart", "exit"),
        default="restart",
        help="what to do when all workers of a model are given up (retry_threshold): load the "
        "model again, with growing pauses, or exit with status 1 (default %(default)s)",
    )
    parser.add_argument(
        "--open-api",
        type=lambda text: comma_list(text, NOT_FOR_CLIENTS),
        default=[],
        metavar="A,B",
        help="Triton's APIs that any client may use without a key, of "
        f"{', '.join(NOT_FOR_CLIENTS)}; default: none of these",
    )
    parser.add_argument(
        "--control-key",
        type=Path,
        metavar="FILE",
        help=f"holds the key that opens these APIs, as the header {HEADER}; made if it is not "
        "there. Default: a new one at each start, that only this command and drain know",
    )


def _serve(arguments: argparse.Namespace) -> int:
    ports = ports_of(arguments)
    ports.check()
    if not arguments.no_frontend:
        check_free("--port", arguments.host, arguments.port)
        certificate_of(arguments)
        if warning := exposure(arguments):
            say(warning)
    restriction = _restriction(arguments.open_api, arguments.control_key)
    with _run_folder() as traces, _stop_signals() as stop:
        run = traces.run
        repository = arguments.model_repository or run / "models"
        models = find_models(arguments.paths, os.environ, repository)
        names = model_names([model.name for model in models], arguments.clients)
        # All are planned before anything is written or loaded.
        plans = list(served_plans(models))
        for model, options, _, _ in plans:
            _write(model, options, repository, arguments.clients)
        server = find_server(run)
        numpy = importlib.metadata.version("numpy")
        if problem := numpy_problem(installed_version(server.binary), numpy):
            raise ConfigurationError(problem)
        setup = ServerSetup(
            server,
            repository,
            names,
            ports,
            traces,
            restriction,
            arguments.log_file,
            tuple(holding for *_, holding in plans),
        )
        supervisor = Supervisor(
            setup,
            stop,
            drain_seconds=arguments.drain_timeout,
            exits_when_given_up=arguments.on_failure == "exit",
        )
        awaited = [model.name for model in models]
        with _front_ends(arguments, ports, run, restriction, awaited) as front:
            return supervisor.run(
                lambda: _greet(names, ports, arguments), front.drain if front else lambda: None
            )


def _front_ends(
    arguments: argparse.Namespace,
    ports: Ports,
    run: Path,
    restriction: Restriction,
    awaited: Sequence[str],
) -> contextlib.AbstractContextManager[FrontEnds | None]:
    if arguments.no_frontend:
        return contextlib.nullcontext()
    if missing := missing_libraries():
        say(f"no front end: {', '.join(missing)} missing; {pip_command('frontend')} brings them")
        return contextlib.nullcontext()
    words = ["--run-folder", str(run), "--triton-url", ports.url]
    words += ["--metrics-url", ports.metrics_url]
    words += [f"--awaited={','.join(awaited)}", *front_end_words(arguments)]
    secrets = dict(zip(KEY_VARIABLES[:1], restriction.arguments(), strict=False))
    return front_ends(words, arguments.frontend_processes, secrets, arguments.log_file)


def _restriction(opened: Sequence[str], key_file: Path | None) -> Restriction:
    """Return which of Triton's APIs are restricted, and by which key."""
    for api in opened:
        say(f"--open-api {api}: {NOT_FOR_CLIENTS[api]}")
    key = read_key(key_file) if key_file else new_key()
    return Restriction(tuple(api for api in NOT_FOR_CLIENTS if api not in opened), key)


def _write(model: Model, options: LmiOptions, repository: Path, aliases: Sequence[Alias]) -> None:
    # The server has the same variables, so none is written.
    write_model(model.folder, repository, model.name, options, force=True)
    for alias in aliases:
        write_alias_model(repository, model.name, alias, options, force=True)
    for line in describe_aliases(model.name, aliases):
        say(f"{model.name}: {line}")


@contextlib.contextmanager
def _run_folder() -> Iterator[Traces]:
    """Give a private folder for sockets and links; it and what uses it are gone at the end."""
    traces = Traces(Path(tempfile.mkdtemp(prefix="lmi-serve-")), f"lmi_{os.getpid()}_")
    with guarded(traces):
        yield traces


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Turn the signals that ask for an end into an event."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _greet(names: list[str], ports: Ports, arguments: argparse.Namespace) -> None:
    """Say what serves and how to ask it; a server that dies meanwhile is not for this to notice."""
    server, example = TritonHttp(ports.url), arguments.example
    prompt = example or "The capital of France is"
    try:
        say(describe(str(server.json("/v2").get("version", ""))))
        if example is not None:
            sys.stdout.write(f"\n{prompt}")
            print_stream(server, names[0], prompt, {"max_new_tokens": 20})
    except LmiError as error:
        say(str(error))
    body = json.dumps({"inputs": prompt, "parameters": {"max_new_tokens": 20}})
    url = f"{ports.url}/v2/models/{names[0]}/generate"
    if not arguments.no_frontend and not missing_libraries():
        certificate = arguments.tls_certificate
        # A small model may be ready before it.
        host, port, has_tls = arguments.host, arguments.port, certificate is not None
        wait_until_well(host, port, _FRONT_END_SECONDS, has_tls=has_tls)
        scheme = f"--cacert {certificate} https" if certificate else "http"
        url = f"{scheme}://{arguments.host}:{arguments.port}/invocations"
    sys.stdout.write(f"\nTry next:\n  curl -s {url} -d '{body}'\n")
    sys.stdout.flush()
