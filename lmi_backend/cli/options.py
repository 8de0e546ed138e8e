"""`lmi-backend options`: the table of options."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from lmi_backend.options import OPTIONS
from lmi_backend.options.engine_spec import SPECS, default_engine, implementation_of
from lmi_backend.options.option import PREFIX, AnyOption, StatusWord
from lmi_backend.options.signature import NO_FLAG, recorded_signature, shorten
from lmi_backend.options.table import ENGINES, VARIABLES
from lmi_backend.printable import printable, say


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command of this module."""
    parser = commands.add_parser(
        "options",
        help="list every option, with what it does here",
        description="List LMI's options: what each accepts, its default, its environment "
        "variables, and what becomes of it under an engine.",
    )
    parser.add_argument(
        "word",
        nargs="?",
        default="",
        metavar="WORD",
        help="only what has this in its name, an alias, a variable, or the engine's own name for "
        "it, in any case; of an engine's name, what is that engine's own",
    )
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

    def has(self, word: str) -> bool:
        """Tell whether one of its names contains a word, in any case."""
        is_live = self.status in ("mapped", "passed")
        names = (self.name, *self.aliases, *self.environment, self.detail if is_live else "")
        return any(word.lower() in name.lower() for name in names)


def _options(arguments: argparse.Namespace) -> int:
    word = arguments.word
    rows = _found(word, arguments.engine)
    if not rows:
        other, rows = _found_elsewhere(word, arguments.engine)
        say(f"no option or variable under {arguments.engine} has {printable(word)} in a name")
        if not rows:
            return 1
        say(f"under {other}, with --engine {other}:")
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
        return 0
    for row in rows:
        _show(row)
    return 0


def _found(word: str, engine: str) -> list[Row]:
    """Return what a word finds under an engine."""
    if owner := _engine_called(word):
        own = {option.name for option in OPTIONS if option.scope == owner}
        return [row for row in table(owner) if row.name in own or row.status == "passed"]
    return [row for row in table(engine) if row.has(word)]


def _found_elsewhere(word: str, engine: str) -> tuple[str, list[Row]]:
    """Return the first other engine under which a word finds something, and what."""
    for other in ENGINES:
        if other != engine and (rows := _found(word, other)):
            return other, rows
    return "", []


def _engine_called(word: str) -> str:
    """Return the engine that LMI, its makers or we call so; empty if none is."""
    for name, spec in SPECS.items():
        if word.lower() in (name, spec.title.lower(), spec.rolling_batch):
            return name
    return ""


def _show(row: Row) -> None:
    default = "" if row.default in ("", 0, {}, [], None, False) else f" ({row.default})"
    is_live = row.status in ("mapped", "passed")
    meaning = f"    {row.help}\n" if is_live else ""
    sys.stdout.write(f"{row.name}{default}\n{meaning}    {row.status}: {row.detail}\n")
    if is_live:
        names = ", ".join([*row.aliases, *row.environment])
        also = f". Also: {names}" if names else ""
        sys.stdout.write(f"    accepted: {row.accepted}{also}\n")


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
        environment=option.variables,
        accepted=option.kind.accepted,
        default=option.default if option.lmi_default is None else option.lmi_default,
        status=status.word,
        detail=status.detail,
        help=option.help,
    )
