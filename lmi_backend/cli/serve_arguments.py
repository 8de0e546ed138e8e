"""The arguments of `lmi-backend serve`."""

from __future__ import annotations

import argparse
from pathlib import Path

from lmi_backend.cli.aliases import add_clients
from lmi_backend.cli.arguments import add_ports, comma_list
from lmi_backend.cli.frontend import add_front_end_arguments
from lmi_backend.repository.restricted_apis import HEADER, NOT_FOR_CLIENTS
from lmi_backend.supervisor.log_relay import FORMATS, TEXT


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
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
        metavar="SECONDS",
        help="time running requests have to finish when stopping (default: the longest "
        "option.shutdown_timeout of the models, which is 30 where it is not set)",
    )
    _add_protection(parser)
    add_clients(parser)
    _add_log(parser)
    parser.add_argument("--example", metavar="PROMPT", help="when ready, show this answer")


def _add_log(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("log")
    group.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="append every line of Triton, the engines and the front end to this file",
    )
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show every line on standard error; default: warnings, errors and requests",
    )
    group.add_argument(
        "--log-format",
        choices=FORMATS,
        default=TEXT,
        help="text: time, level, model or program, text; json: an object a line (%(default)s)",
    )


def _add_protection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--require",
        action="append",
        default=[],
        metavar="MODEL",
        help="do not start without this model; may be given again. Default: what can be loaded "
        "serves, the rest is tried again, and the server starts if one model does",
    )
    parser.add_argument(
        "--on-failure",
        choices=("restart", "exit"),
        default="restart",
        help="what to do when all workers of a model have failed (retry_threshold). restart loads "
        "the model again, with growing pauses; exit stops with status 1 (default %(default)s)",
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
