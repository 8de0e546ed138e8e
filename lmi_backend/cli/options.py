"""`lmi-backend options`: the table of options."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lmi_backend.options import OPTIONS
from lmi_backend.options.engine_spec import default_engine, implementation_of
from lmi_backend.options.option import PREFIX
from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import ENGINES, VARIABLES

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from lmi_backend.options.option import Option


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "options",
        help="list every option, with what it does here",
        description="List LMI's options: what each accepts, its default, its environment "
        "variables, and what becomes of it under an engine.",
    )
    parser.add_argument("filter", nargs="?", default="", help="only names that contain this")
    parser.add_argument(
        "--engine", choices=ENGINES, default=default_engine(), help="default %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.set_defaults(run=_options)


def _options(arguments: argparse.Namespace) -> int:
    rows = [row for row in table(arguments.engine) if arguments.filter in row["name"]]
    if arguments.json:
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 0
    for row in rows:
        default = "" if row["default"] in ("", 0, {}, [], None, False) else f" ({row['default']})"
        is_live = row["status"] in ("mapped", "passed")
        meaning = f"    {row['help']}\n" if is_live else ""
        sys.stdout.write(f"{row['name']}{default}\n{meaning}    {row['status']}: {row['detail']}\n")
        if is_live:
            names = ", ".join([*row["aliases"], *row["environment"]])
            sys.stdout.write(f"    accepted: {row['accepted']}. Also: {names}\n")
    return 0


def table(engine: str) -> Iterator[dict[str, Any]]:
    """Yield a row of plain values for every option that an engine understands or LMI knows."""
    for option in OPTIONS:
        if engine in option.engines:
            yield _row(option, engine)
    runs_on = implementation_of(engine)
    signature = recorded_signature(runs_on)
    listed = {key for option in OPTIONS for key in (option.name, *option.aliases)}
    for name, argument in (signature.arguments if signature else {}).items():
        if PREFIX + name not in listed:
            yield {
                "name": PREFIX + name,
                "aliases": [],
                "environment": [f"OPTION_{name.upper()}"],
                "accepted": argument.type,
                "default": argument.default,
                "status": "passed",
                "detail": f"{runs_on} {name}",
                "help": f"Argument of {runs_on}, read by its own parser.",
            }
    for name, status in VARIABLES.items():
        yield {
            "name": name,
            "aliases": [],
            "environment": [name],
            "accepted": "any text",
            "default": None,
            "status": status.word,
            "detail": status.detail,
            "help": "Environment variable.",
        }


def _row(option: Option[Any], engine: str) -> dict[str, Any]:
    status = option.status_under(engine)
    default = option.default if option.lmi_default is None else option.lmi_default
    return {
        "name": option.name,
        "aliases": list(option.aliases),
        "environment": [
            option.variable,
            *option.env,
            *option.inverse_env,
            *option.overriding_env,
        ],
        "accepted": option.kind.accepted,
        "default": default,
        "status": status.word,
        "detail": status.detail,
        "help": option.help,
    }
