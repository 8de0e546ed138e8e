"""`lmi-backend restart --front-end`: a new front end without a refused connection."""

from __future__ import annotations

import argparse
import time

from lmi_backend.cli.arguments import add_timeout, add_url
from lmi_backend.errors import UnavailableError
from lmi_backend.printable import say
from lmi_backend.supervisor.front_end_order import Ended, restart_front_ends
from lmi_backend.supervisor.local_server import front_end_keeper


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "restart",
        help="replace a running front end, as after an upgrade, without a refused connection",
        description="Start a new front end of `lmi-backend serve` on this machine. Once it knows "
        "all models it accepts the connections. The old one finishes its requests, and "
        "exits. If the new one does not start, the old one stays. Several processes "
        "(--frontend-processes) are replaced one after the other. Run it as the server's user, "
        "where the server runs.",
        examples=("lmi-backend restart --front-end http://127.0.0.1:8080",),
        statuses={
            0: "the front end is new, and all requests finished",
            1: "the old one stays, or some requests were cut",
        },
    )
    add_url(parser)
    parser.add_argument(
        "--front-end",
        action="store_true",
        required=True,
        help="what is restarted; for workers see `drain --worker`",
    )
    add_timeout(
        parser,
        600.0,
        "time running requests have to finish; streams that clients can resume continue after it",
    )
    parser.set_defaults(run=_restart)


def _restart(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    for answer in restart_front_ends(front_end_keeper(arguments.url), arguments.timeout):
        seconds = f"{time.monotonic() - began:.1f} s"
        if isinstance(answer, Ended):
            if answer.num_cut:
                say(f"{answer.num_cut} old processes took longer than --timeout and were stopped")
                return 1
            say(f"the old one has exited after {seconds}")
            break
        if answer.problem:
            raise UnavailableError(answer.problem)
        say(f"the front end is new after {seconds}; the old one finishes its requests")
    return 0
