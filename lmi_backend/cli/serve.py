"""`lmi-backend serve`: from LMI folders to a running, and cleanly stopped, Triton server."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_backend.cli.aliases import add_clients, model_names
from lmi_backend.cli.arguments import MOST_SECONDS, add_ports, comma_list, number, path_of, ports_of
from lmi_backend.cli.folders import LmiFolder, add_save, find_models, with_flags
from lmi_backend.cli.frontend import (
    add_front_end_arguments,
    check,
    settings_of,
    triton_exposure,
)
from lmi_backend.cli.greeting import Greeter
from lmi_backend.cli.planning import served_plans
from lmi_backend.errors import ConfigurationError
from lmi_backend.machine import check_limits
from lmi_backend.printable import listed, say, speaking
from lmi_backend.repository.files import command_line_properties
from lmi_backend.repository.restricted_apis import (
    HEADER,
    NOT_FOR_CLIENTS,
    Restriction,
    headers_for,
)
from lmi_backend.repository.writer import write_alias_model, write_model
from lmi_backend.supervisor.control_key import new_key, read_key
from lmi_backend.supervisor.front_end import FrontEnds, front_ends
from lmi_backend.supervisor.installation import usable_server
from lmi_backend.supervisor.log_relay import (
    FORMATS,
    STANDARD_ERROR,
    TEXT,
    LogFile,
    LogFormat,
    relaying,
)
from lmi_backend.supervisor.processes import Traces, guarded
from lmi_backend.supervisor.run_folder import RunFolder
from lmi_backend.supervisor.server import ServerSetup
from lmi_backend.supervisor.shared_names import SharedNames, remove_abandoned
from lmi_backend.supervisor.stop import StopSignals, leave_init_behind
from lmi_backend.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan import EnginePlan
    from lmi_backend.repository.variants import Alias


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve",
        help="serve LMI folders on Triton until Ctrl-C",
        description="Serve LMI folders on Triton. Ctrl-C or SIGTERM lets running requests finish "
        "and then stops everything; a second one stops at once. If the server or a model's stub "
        "dies or hangs, the server is restarted, with growing pauses if it does not last. "
        "Triton's APIs that are not for clients, such as loading models, need a key.",
        examples=(
            "lmi-backend serve Qwen/Qwen3-0.6B --max-model-len 4096",
            "lmi-backend serve llama qwen --require llama --log-file serve.log",
        ),
        takes_flags=True,
        statuses={
            0: "it was told to stop",
            1: "a model or the server did not start, or stopped for good (--on-failure exit)",
        },
    )
    add = parser.add_argument
    add(
        "paths",
        nargs="*",
        metavar="PATH",
        help="a model of the Hub as ORGANISATION/NAME, a folder of weights, an LMI folder, or a "
        "store of such folders; default: what SERVING_LOAD_MODELS or /opt/ml/model holds",
    )
    add_save(parser)
    add("--model-repository", type=path_of, help="keep the Triton model folders here")
    add_front_end_arguments(parser)
    add("--no-frontend", action="store_true", help="do not start it: Triton's own ports only")
    add_ports(parser)
    _add_protection(parser)
    add_clients(parser)
    add = parser.add_argument_group("log").add_argument
    add("--log-file", type=path_of, metavar="FILE", help="append every line of all programs here")
    add("-v", "--verbose", action="store_true", help="show every line on standard error")
    add(
        "--log-format",
        choices=FORMATS,
        default=TEXT,
        help="text: time, level, model or program, text; json: an object a line (%(default)s)",
    )
    parser.set_defaults(run=_serve)


def _add_protection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--drain-timeout",
        type=number(float, 0, MOST_SECONDS),
        metavar="SECONDS",
        help="time running requests have to finish when stopping (default: the longest "
        "option.shutdown_timeout of the models, which is 30 where it is not set)",
    )
    add(
        "--require",
        action="append",
        default=[],
        metavar="MODEL",
        help="do not start without this model; may be given again. Default: what can be loaded "
        "serves, the rest is tried again, and the server starts if one model does",
    )
    add(
        "--on-failure",
        choices=("restart", "exit"),
        default="restart",
        help="what to do when all workers of a model have failed (retry_threshold). restart loads "
        "the model again, with growing pauses; exit stops with status 1 (default %(default)s)",
    )
    apis = ", ".join(NOT_FOR_CLIENTS)
    add(
        "--open-api",
        type=lambda text: comma_list(text, NOT_FOR_CLIENTS),
        default=[],
        metavar="A,B",
        help=f"Triton's APIs that any client may use without a key, of {apis}; default: none",
    )
    add(
        "--control-key",
        type=path_of,
        metavar="FILE",
        help=f"holds the key that opens these APIs, as the header {HEADER}; made if it is not "
        "there. Default: a new one at each start, that only this command and drain know",
    )


def _serve(arguments: argparse.Namespace) -> int:
    leave_init_behind()
    _check(arguments)
    stop = StopSignals(on_hangup=arguments.log_file is None)
    log_format = LogFormat(
        arguments.log_format, shows_all=arguments.verbose or arguments.log_file is not None
    )
    with (
        _run_folder() as (folder, traces),
        stop.listening(),
        _logging(arguments.log_file, log_format) as log,
    ):
        try:
            # Nothing but a signal ends a plan that waits for the Hub.
            with stop.interrupting():
                setup, plans = _prepare(arguments, folder, traces, log)
        except KeyboardInterrupt:
            return 0
        log_format.models = setup.names
        supervisor = Supervisor(
            setup,
            stop,
            drain_seconds=drain_seconds(arguments, plans),
            exits_when_given_up=arguments.on_failure == "exit",
        )
        greeter = Greeter(plans, setup.ports, arguments, lambda: stop.is_requested)
        with _front_ends(arguments, setup, plans, stop) as front:
            return supervisor.run(greeter.start, front.drain if front else lambda: None)


def drain_seconds(arguments: argparse.Namespace, plans: Mapping[str, EnginePlan]) -> float:
    """Return the time that running requests have to finish when the server stops."""
    given: float | None = arguments.drain_timeout
    longest = max((plan.limits.drain_seconds for plan in plans.values()), default=0)
    return longest if given is None else given


@contextlib.contextmanager
def _logging(file: Path | None, log_format: LogFormat) -> Iterator[int]:
    """Give the descriptor on which programs log, and write our own lines in the same format."""
    with contextlib.ExitStack() as stack:
        target: int | LogFile = STANDARD_ERROR
        if file is not None:
            try:
                target = stack.enter_context(contextlib.closing(LogFile(file)))
            except OSError as error:
                raise ConfigurationError(f"--log-file {file}: {error.strerror}") from error
        stack.enter_context(speaking(log_format.own))
        yield stack.enter_context(relaying(target, change=log_format))


def _check(arguments: argparse.Namespace) -> None:
    check_limits()
    if warning := triton_exposure(arguments):
        say(warning, "WARNING")
    ports_of(arguments).check({} if arguments.no_frontend else {"--port": arguments.port})
    if not arguments.no_frontend:
        check(arguments, instead=", or --no-frontend")


def _prepare(
    arguments: argparse.Namespace, folder: RunFolder, traces: Traces, log: int
) -> tuple[ServerSetup, dict[str, EnginePlan]]:
    restriction = _restriction(arguments.open_api, arguments.control_key)
    server = usable_server(folder.path, arguments.model_repository)
    repository = arguments.model_repository or folder.path / "models"
    models = with_flags(find_models(arguments.paths, repository), arguments)
    names = model_names([model.name for model in models], arguments.clients)
    for name in arguments.require:
        if name not in names:
            raise ConfigurationError(f"--require {name}: accepted: {listed(names)}")
    # All are planned before anything is written or loaded.
    plans = list(served_plans(models))
    for model, options, _, _ in plans:
        _write(model, options, repository, arguments.clients)
    folder.keep()
    setup = ServerSetup(
        server,
        repository,
        names,
        ports_of(arguments),
        folder,
        traces,
        restriction,
        log,
        tuple(allocation for *_, allocation in plans),
        max(plan.limits.max_message_size for _, _, plan, _ in plans),
        frozenset(arguments.require),
    )
    return setup, {model.name: plan for model, _, plan, _ in plans}


def _front_ends(
    arguments: argparse.Namespace,
    setup: ServerSetup,
    plans: Mapping[str, EnginePlan],
    stop: StopSignals,
) -> contextlib.AbstractContextManager[FrontEnds | None]:
    if arguments.no_frontend:
        return contextlib.nullcontext()
    settings = settings_of(
        arguments,
        base=setup.traces.run,
        triton_url=setup.ports.url,
        metrics_url=setup.ports.metrics_url,
        control_headers=headers_for("model-repository", setup.restriction.arguments()),
        awaited={name: plan.config.served_names for name, plan in plans.items()},
        required=tuple(setup.required),
        is_verbose=arguments.verbose,
    )
    return front_ends(settings, setup.log, is_urgent=lambda: stop.is_urgent)


def _restriction(opened: Sequence[str], key_file: Path | None) -> Restriction:
    for api in opened:
        say(f"--open-api {api}: {NOT_FOR_CLIENTS[api]}", "WARNING")
    key = read_key(key_file) if key_file else new_key()
    return Restriction(tuple(api for api in NOT_FOR_CLIENTS if api not in opened), key)


def _write(
    model: LmiFolder,
    options: LmiOptions,
    repository: Path,
    aliases: Sequence[Alias],
) -> None:
    # The server has the same variables, so none is written.
    flags = command_line_properties(model.given or ())
    write_model(model.folder, repository, model.name, options, force=True, from_environment=flags)
    for alias in aliases:
        write_alias_model(repository, model.name, alias, options, force=True)
        say(f"{model.name}: {alias.model_name(model.name)}: for {alias.variant.help}")


@contextlib.contextmanager
def _run_folder() -> Iterator[tuple[RunFolder, Traces]]:
    """Give a private folder for sockets and links; it and what uses it are gone at the end."""
    remove_abandoned()
    folder = RunFolder()
    traces = Traces(folder.path, SharedNames.claim())
    with guarded(traces):
        yield folder, traces
