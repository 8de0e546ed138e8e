"""`lmi-backend health`: does each model take requests? For probes of a container."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lmi_backend.cli.arguments import add_timeout, add_url
from lmi_backend.endpoint.control import request_health
from lmi_backend.supervisor.local_server import LocalServer


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "health",
        help="say whether the models of a server accept requests",
        description="Check whether each model of a tritonserver on this machine accepts requests. "
        "Triton itself may call a model READY after a crash. Exit status 0 if all accept. Run it "
        "as the server's user, where the server runs.",
    )
    add_url(parser)
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
    for name, state, endpoint in LocalServer.at(arguments.url).models():
        # An alias model takes requests when the one whose workers it shares does.
        if endpoint is not None and arguments.model in (None, name):
            problems[name] = _problem(state, endpoint, arguments)
    if not problems:
        wanted = arguments.model or "a model of lmi-backend"
        sys.stdout.write(f"{arguments.url}: {wanted} is not loaded\n")
        return 1
    for name, problem in problems.items():
        sys.stdout.write(f"{name}: {problem or 'ready'}\n")
    return int(any(problems.values()))


def _problem(state: str, endpoint: Path, arguments: argparse.Namespace) -> str:
    """Return what is wrong with a model; nothing if it is well."""
    health = request_health(endpoint, arguments.timeout)
    if health is None:
        return f"its process does not answer within {arguments.timeout:g} s"
    if arguments.live:
        return health.problem if health.is_given_up else ""
    if not health.is_ready:
        return health.problem
    return "" if state == "READY" else f"Triton calls it {state or 'unloaded'}"
