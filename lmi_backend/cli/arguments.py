"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Collection
from typing import Any, Final

from lmi_backend.supervisor.ports import Ports

_HTTP_PORT: Final = 8000
_GRPC_PORT: Final = 8001
_METRICS_PORT: Final = 8002
DEFAULT_URL: Final = f"http://127.0.0.1:{_HTTP_PORT}"


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add URL, the HTTP port of a running server."""
    parser.add_argument(
        "url",
        nargs="?",
        default=DEFAULT_URL,
        metavar="URL",
        help="the server's HTTP port (%(default)s)",
    )


def add_timeout(parser: argparse.ArgumentParser, seconds: float, what: str) -> None:
    """Add --timeout; `what` is its help, without the default."""
    parser.add_argument(
        "--timeout",
        type=float,
        default=seconds,
        metavar="SECONDS",
        help=f"{what} (default %(default)s)",
    )


def add_ports(parser: argparse.ArgumentParser, host_help: str) -> None:
    """Add --triton-host and the ports of a server; `ports_of` reads them."""
    parser.add_argument(
        "--triton-host",
        default="127.0.0.1",
        metavar="HOST",
        help=f"{host_help}, IPv4 or IPv6 (%(default)s)",
    )
    parser.add_argument("--http-port", type=int, default=_HTTP_PORT, help="default %(default)s")
    parser.add_argument("--grpc-port", type=int, default=_GRPC_PORT, help="default %(default)s")
    parser.add_argument(
        "--metrics-port", type=int, default=_METRICS_PORT, help="default %(default)s"
    )


def ports_of(arguments: argparse.Namespace) -> Ports:
    """Return what the arguments of `add_ports` say."""
    return Ports(
        arguments.triton_host, arguments.http_port, arguments.grpc_port, arguments.metrics_port
    )


def comma_list(text: str, accepted: Collection[str]) -> list[str]:
    """Return the names in a text that has commas between them.

    Raises:
        ArgumentTypeError: one of them is not accepted.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in accepted:
            message = f"{name!r} is unknown; accepted: {', '.join(accepted)}"
            raise argparse.ArgumentTypeError(message)
    return names


def number(kind: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    """Return what reads a number between two others, for `add_argument`."""

    def read(text: str) -> Any:
        with contextlib.suppress(ValueError):
            if least <= (value := kind(text)) <= most:
                return value
        raise argparse.ArgumentTypeError(f"{text}: accepted: {least:g} to {most:g}")

    return read


def percent(text: str) -> float:
    """Return the number before a percent sign, which may be missing."""
    value: float = number(float, 0, 100)(text.removesuffix("%"))
    return value
