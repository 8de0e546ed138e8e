"""`lmi-backend serve`: from LMI folders to a running, and cleanly stopped, Triton server."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
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
from lmi_backend.cli.greeting import Greeting
from lmi_backend.cli.planning import served_plans
from lmi_backend.errors import ConfigurationError
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
from lmi_backend.supervisor.init_process import leave_init_behind
from lmi_backend.supervisor.installation import find_server
from lmi_backend.supervisor.ports import check_free
from lmi_backend.supervisor.run_folder import RunFolder, shell_problem
from lmi_backend.supervisor.server import ServerSetup
from lmi_backend.supervisor.shared_names import SharedNames, remove_abandoned
from lmi_backend.supervisor.stop import Stop
from lmi_backend.supervisor.supervisor import Supervisor
from lmi_backend.supervisor.traces import Traces
from lmi_backend.supervisor.triton_release import installed_version, numpy_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmi_backend.options import LmiOptions
    from lmi_backend.repository.variants import Alias


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "serve",
        help="serve LMI folders on Triton until Ctrl-C",
        description="Serve LMI folders on Triton. Ctrl-C or SIGTERM lets running requests finish "
        "and then stops everything; a second one stops at once. If the server or a model's stub "
        "dies or hangs, the server is restarted, with growing pauses if it does not last. "
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
    leave_init_behind()
    _check(arguments)
    stop = Stop()
    with _run_folder() as (folder, traces), stop.listening():
        try:
            # Nothing but a signal ends a plan that waits for the Hub.
            with stop.interrupting():
                setup = _prepare(arguments, folder, traces)
        except KeyboardInterrupt:
            return 0
        supervisor = Supervisor(
            setup,
            stop,
            drain_seconds=arguments.drain_timeout,
            exits_when_given_up=arguments.on_failure == "exit",
        )
        greeting = Greeting(setup.names, setup.ports, arguments, lambda: stop.is_asked)
        with _front_ends(arguments, setup, stop) as front:
            return supervisor.run(greeting.start, front.drain if front else lambda: None)


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what cannot work before anything is planned."""
    ports_of(arguments).check()
    if not arguments.no_frontend:
        check_free("--port", "--host", arguments.host, arguments.port)
        certificate_of(arguments)
        if warning := exposure(arguments):
            say(warning)
    repository = arguments.model_repository
    if repository and (problem := shell_problem(repository)):
        raise ConfigurationError(f"--model-repository {repository}: {problem}")
    if arguments.log_file:
        try:
            arguments.log_file.open("ab").close()
        except OSError as error:
            message = f"--log-file {arguments.log_file}: {error.strerror}"
            raise ConfigurationError(message) from error


def _prepare(arguments: argparse.Namespace, folder: RunFolder, traces: Traces) -> ServerSetup:
    """Plan the models and write what the server reads."""
    restriction = _restriction(arguments.open_api, arguments.control_key)
    repository = arguments.model_repository or folder.path / "models"
    models = find_models(arguments.paths, os.environ, repository)
    names = model_names([model.name for model in models], arguments.clients)
    # All are planned before anything is written or loaded.
    plans = list(served_plans(models))
    for model, options, _, _ in plans:
        _write(model, options, repository, arguments.clients)
    server = find_server(folder.path)
    if problem := shell_problem(server.backends):
        raise ConfigurationError(f"{server.backends}: {problem}")
    numpy = importlib.metadata.version("numpy")
    if problem := numpy_problem(installed_version(server.binary), numpy):
        raise ConfigurationError(problem)
    folder.keep()
    return ServerSetup(
        server,
        repository,
        names,
        ports_of(arguments),
        folder,
        traces,
        restriction,
        arguments.log_file,
        tuple(holding for *_, holding in plans),
    )


def _front_ends(
    arguments: argparse.Namespace, setup: ServerSetup, stop: Stop
) -> contextlib.AbstractContextManager[FrontEnds | None]:
    if arguments.no_frontend:
        return contextlib.nullcontext()
    if missing := missing_libraries():
        say(f"no front end: {', '.join(missing)} missing; {pip_command('frontend')} brings them")
        return contextlib.nullcontext()
    words = ["--run-folder", str(setup.traces.run), "--triton-url", setup.ports.url]
    words += ["--metrics-url", setup.ports.metrics_url]
    awaited = ",".join(holding.model for holding in setup.holdings)
    words += [f"--awaited={awaited}", *front_end_words(arguments)]
    secrets = dict(zip(KEY_VARIABLES[:1], setup.restriction.arguments(), strict=False))
    return front_ends(
        words,
        arguments.frontend_processes,
        secrets,
        setup.log_file,
        is_urgent=lambda: stop.is_urgent,
    )


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
def _run_folder() -> Iterator[tuple[RunFolder, Traces]]:
    """Give a private folder for sockets and links; it and what uses it are gone at the end."""
    remove_abandoned()
    folder = RunFolder()
    traces = Traces(folder.path, SharedNames.claim())
    with guarded(traces):
        yield folder, traces
