"""`lmi-backend drain`: before a server is stopped, let its requests end."""

from __future__ import annotations

import argparse
import time

from lmi_backend.cli.arguments import add_timeout, add_url
from lmi_backend.endpoint.control import Draining, count_workers, is_endpoint_of, renew_worker
from lmi_backend.errors import RequestError, UnavailableError
from lmi_backend.printable import say
from lmi_backend.supervisor.local_server import LocalServer

_POLL_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
# The stub knows how long a start may take, and says when it takes longer.
_LOAD_SECONDS = 86_400.0


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    add_url(parser)
    add_timeout(parser, 30.0, "time running requests have to finish")
    parser.add_argument(
        "--worker",
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
    """Restart workers, one after the other."""
    name = arguments.model
    found = [each for each in server.endpoints if name is None or is_endpoint_of(each, name)]
    if len(found) != 1:
        asked = f"no model {name}" if name else f"{len(found)} models"
        raise UnavailableError(f"{arguments.url}: has {asked}; accepted: --model, one of its own")
    count = count_workers(found[0], _ANSWER_SECONDS)
    if arguments.worker != "all" and not arguments.worker.isdecimal():
        raise RequestError(
            "is no number", field="--worker", value=arguments.worker, accepted="a number, or all"
        )
    for index in range(count) if arguments.worker == "all" else (int(arguments.worker),):
        began = time.monotonic()
        cut = renew_worker(found[0], index, arguments.timeout, _LOAD_SECONDS)
        more = f"; {cut} requests took too long and got an error" if cut else ""
        say(f"worker {index} is new after {time.monotonic() - began:.1f} s{more}")
    return 0
