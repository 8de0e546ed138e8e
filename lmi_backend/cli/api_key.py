"""`lmi-backend api-key`: a key for a client of the front end."""

from __future__ import annotations

import argparse
import secrets
import sys

from lmi_backend.cli.arguments import number
from lmi_backend.errors import ConfigurationError


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "api-key",
        help="make a key for a client of the front end",
        description="Make a key. Standard error gets the key itself, once, for the client. "
        "Standard output gets the line for the file of --api-keys, with a hash only.",
        examples=("lmi-backend api-key alice --running 8 >> keys",),
    )
    parser.add_argument("name", help="whose it is; logs and limits go by it")
    parser.add_argument("--operator", action="store_true", help="it also manages models")
    count = number(int, 1, 1_000_000_000_000)
    parser.add_argument("--running", type=count, metavar="N", help="requests at once")
    parser.add_argument("--requests-per-minute", type=count, metavar="N")
    parser.add_argument(
        "--tokens-per-minute", type=count, metavar="N", help="of prompts and answers together"
    )
    parser.set_defaults(run=_api_key)


def _api_key(arguments: argparse.Namespace) -> int:
    from lmi_backend.frontend.http.api_keys import ACCEPTED, hash_of, is_name  # noqa: PLC0415

    if not is_name(arguments.name):
        raise ConfigurationError(f"{arguments.name!r} is not a valid name; accepted: {ACCEPTED}")
    key = f"lmi-{secrets.token_urlsafe(32)}"
    words = [arguments.name, hash_of(key)]
    if arguments.operator:
        words.append("operator")
    for limit in ("running", "requests-per-minute", "tokens-per-minute"):
        if (count := getattr(arguments, limit.replace("-", "_"))) is not None:
            words.append(f"{limit}={count}")
    sys.stderr.write(f"{key}\n")
    sys.stdout.write(f"{' '.join(words)}\n")
    return 0
