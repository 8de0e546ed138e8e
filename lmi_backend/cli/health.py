"""`lmi-backend health`: does each model take requests? For probes of a container."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lmi_backend.cli.arguments import add_timeout, add_url
from lmi_backend.endpoint.control import request_health
from lmi_backend.supervisor.local_server import LocalServer


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "health",
        help="say whether the models of a server accept requests",
        description="Check whether each model of a tritonserver on this machine accepts requests. "
        "Triton itself may call a model READY after a crash. Run it as the server's user, "
        "where the server runs.",
        examples=("lmi-backend health", "lmi-backend health --model llama --live"),
        statuses={0: "all models take requests", 1: "one does not, or no server answers"},
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
    """Return the models that could not be loaded, and why, where nothing loads them again.

    Restarting the container may help none of them. A `serve` tries again, while the others serve.
    """
    if arguments.live:
        return {}
    asked = arguments.model
    return {
        name: f"it could not be loaded: {reason}"
        for name, reason in server.failed().items()
        if name == asked or not (asked or server.is_kept)
    }


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
