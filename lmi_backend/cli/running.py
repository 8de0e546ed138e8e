"""Commands for a running server: health and drain."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Final

from lmi_backend.cli.arguments import DEFAULT_URL, add_timeout, matching
from lmi_backend.endpoint.control import (
    Draining,
    count_workers,
    is_endpoint_of,
    renew_worker,
    request_health,
)
from lmi_backend.errors import UnavailableError
from lmi_backend.printable import say
from lmi_backend.supervisor.local_server import LocalServer

_POLL_SECONDS: Final = 0.1
_PROGRESS_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 5.0
_LOAD_SECONDS: Final = 86_400.0
"""The stub knows how long a start may take, and says when it takes longer."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _add_drain(commands)
    _add_health(commands)


def _add_url(parser: argparse.ArgumentParser) -> None:
    text = "the server's HTTP port (%(default)s)"
    parser.add_argument("url", nargs="?", default=DEFAULT_URL, metavar="URL", help=text)


def _add_health(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "health",
        help="say whether the models of a server accept requests",
        description="Check whether each model of a tritonserver on this machine accepts requests. "
        "Triton itself may call a model READY after a crash. Run it as the server's user, "
        "where the server runs.",
        examples=("lmi-backend health", "lmi-backend health --model llama --live"),
        statuses={0: "all models take requests", 1: "one does not, or no server answers"},
    )
    _add_url(parser)
    parser.add_argument("--model", metavar="NAME", help="check this model only; default: all")
    parser.add_argument(
        "--live",
        action="store_true",
        help="for a liveness probe: fail only if a restart of the container helps. That is so if "
        "a model's process does not answer, or if all its workers have failed",
    )
    add_timeout(parser, 3.0, "time each model has to answer")
    parser.set_defaults(run=_health)


def _health(arguments: argparse.Namespace) -> int:
    problems = {}
    server = LocalServer.at(arguments.url)
    for name, state, endpoint in server.models():
        # An alias model takes requests when the one whose workers it shares does.
        if endpoint is not None and arguments.model in (None, name):
            problems[name] = _problem(state, endpoint, arguments)
    problems |= _failed(server, arguments)
    if not problems:
        wanted = arguments.model or "a model of lmi-backend"
        sys.stdout.write(f"{arguments.url}: {wanted} is not loaded\n")
        return 1
    for name, problem in problems.items():
        sys.stdout.write(f"{name}: {problem or 'ready'}\n")
    return int(any(problems.values()))


def _failed(server: LocalServer, arguments: argparse.Namespace) -> dict[str, str]:
    """Return the models that could not be loaded, and why, where nothing loads them again."""
    if arguments.live:
        return {}
    wanted = arguments.model
    return {
        name: f"it could not be loaded: {reason}"
        for name, reason in server.failed().items()
        if name == wanted or not (wanted or server.is_supervised)
    }


def _problem(state: str, endpoint: Path, arguments: argparse.Namespace) -> str:
    health = request_health(endpoint, arguments.timeout)
    if health is None:
        return f"its process does not answer within {arguments.timeout:g} s"
    if arguments.live:
        return health.problem if health.is_given_up else ""
    if not health.is_ready:
        return health.problem
    return "" if state == "READY" else f"Triton calls it {state or 'unloaded'}"


def _add_drain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "drain",
        help="let running requests finish before a server stops",
        description="Refuse new requests on a tritonserver on this machine (UNAVAILABLE), wait "
        "until the running ones have finished, and unload the models. Requests that take too long "
        "fail. Use it as a pre-stop hook of a container. Run it as the server's user, where the "
        "server runs.",
        examples=(
            "lmi-backend drain http://127.0.0.1:8000 --timeout 60",
            "lmi-backend drain --worker all",
        ),
        statuses={0: "all requests finished", 1: "some were cut, or no server answers"},
    )
    _add_url(parser)
    add_timeout(parser, 30.0, "time running requests have to finish")
    parser.add_argument(
        "--worker",
        type=matching(re.compile("all|[0-9]+"), "a number, or all"),
        metavar="N",
        help="a number, or all: restart this worker, or one after the other, while the server "
        "continues. Its requests resume elsewhere; those that cannot fail",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="whose worker; needed where the server has several models"
    )
    parser.set_defaults(run=_drain)


def _drain(arguments: argparse.Namespace) -> int:
    server = LocalServer.at(arguments.url)
    if not server.endpoints:
        raise UnavailableError(f"{arguments.url}: has no model of lmi-backend")
    if arguments.worker is not None:
        return _renew(server, arguments)
    draining = Draining(server.endpoints, arguments.timeout)
    began = reported = time.monotonic()
    while not draining.is_over:
        time.sleep(_POLL_SECONDS)
        if time.monotonic() - reported > _PROGRESS_SECONDS:
            reported = time.monotonic()
            waited = f"{reported - began:.0f} s of {arguments.timeout:.0f}"
            say(f"waiting for running requests: {waited}")
    # Not before: of a model that is being unloaded Triton says that it does not exist.
    if not server.unload():
        say("models stay ready, but refuse requests: unloading needs --model-control-mode=explicit")
    cut = f"; {draining.cut} requests took too long and got an error" if draining.cut else ""
    say(f"drained {len(server.endpoints)} models in {time.monotonic() - began:.1f} s{cut}")
    return 0


def _renew(server: LocalServer, arguments: argparse.Namespace) -> int:
    name = arguments.model
    endpoints = [each for each in server.endpoints if name is None or is_endpoint_of(each, name)]
    if len(endpoints) != 1:
        problem = f"no model {name}" if name else f"{len(endpoints)} models"
        raise UnavailableError(f"{arguments.url}: has {problem}; accepted: --model, one of its own")
    count = count_workers(endpoints[0], _ANSWER_SECONDS)
    for index in range(count) if arguments.worker == "all" else (int(arguments.worker),):
        began = time.monotonic()
        cut = renew_worker(endpoints[0], index, arguments.timeout, _LOAD_SECONDS)
        more = f"; {cut} requests took too long and got an error" if cut else ""
        say(f"worker {index} is new after {time.monotonic() - began:.1f} s{more}")
    return 0
