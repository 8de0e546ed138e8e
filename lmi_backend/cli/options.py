"""`lmi-backend options`: the table of options."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from lmi_backend.options import OPTIONS
from lmi_backend.options.engine_spec import default_engine, implementation_of
from lmi_backend.options.option import PREFIX, AnyOption, StatusWord
from lmi_backend.options.signature import NO_FLAG, recorded_signature, shorten
from lmi_backend.options.table import ENGINES, VARIABLES


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


@dataclass(frozen=True, kw_only=True)
class Row:
    """An option, an engine's argument or an environment variable, for people."""

    name: str
    aliases: tuple[str, ...] = ()
    environment: tuple[str, ...]
    """Variables that set it."""
    accepted: str
    default: object = None
    status: StatusWord
    detail: str
    help: str


def _options(arguments: argparse.Namespace) -> int:
    rows = [row for row in table(arguments.engine) if arguments.filter in row.name]
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
        return 0
    for row in rows:
        _show(row)
    return 0


def _show(row: Row) -> None:
    default = "" if row.default in ("", 0, {}, [], None, False) else f" ({row.default})"
    is_live = row.status in ("mapped", "passed")
    meaning = f"    {row.help}\n" if is_live else ""
    sys.stdout.write(f"{row.name}{default}\n{meaning}    {row.status}: {row.detail}\n")
    if is_live:
        names = ", ".join([*row.aliases, *row.environment])
        sys.stdout.write(f"    accepted: {row.accepted}. Also: {names}\n")


def table(engine: str) -> Iterator[Row]:
    """Yield a row for every option that an engine understands or LMI knows."""
    yield from (_row(option, engine) for option in OPTIONS if engine in option.engines)
    yield from _arguments(implementation_of(engine))
    for name, status in VARIABLES.items():
        yield Row(
            name=name,
            environment=(name,),
            accepted="any text",
            status=status.word,
            detail=status.detail,
            help="Environment variable.",
        )


def _arguments(implementation: str) -> Iterator[Row]:
    """Yield what is an option under the engine's own name alone."""
    signature = recorded_signature(implementation)
    listed = {key for option in OPTIONS for key in (option.name, *option.aliases)}
    for name, argument in (signature.arguments if signature else {}).items():
        if PREFIX + name not in listed:
            is_settable = argument.flag != NO_FLAG
            yield Row(
                name=PREFIX + name,
                environment=(f"OPTION_{name.upper()}",),
                accepted=shorten(argument.type),
                default=argument.default,
                status="passed" if is_settable else "refused",
                detail=f"{implementation} {name}" if is_settable else "it has no flag for it",
                help=f"Argument of {implementation}, read by its own parser.",
            )


def _row(option: AnyOption, engine: str) -> Row:
    status = option.status_under(engine)
    return Row(
        name=option.name,
        aliases=option.aliases,
        environment=(option.variable, *option.env, *option.inverse_env, *option.overriding_env),
        accepted=option.kind.accepted,
        default=option.default if option.lmi_default is None else option.lmi_default,
        status=status.word,
        detail=status.detail,
        help=option.help,
    )
