"""`lmi-backend options`: the table of options."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from lmi_backend.cli.planning import add_release, machine_of
from lmi_backend.options import OPTIONS
from lmi_backend.options.classification import status_of
from lmi_backend.options.hints import meanings_of
from lmi_backend.options.signature import recorded_signature, shorten, supposed_signature
from lmi_backend.options.spec import (
    PREFIX,
    SPECS,
    AnyOption,
    StatusWord,
    default_engine,
    implementation_of,
)
from lmi_backend.options.table import ENGINES, KEYS, VARIABLES, find_option
from lmi_backend.printable import printable, say

_OTHERS: Final = re.compile(r"--?(no-(?=.))?|SM_VLLM_(NO_)?|option\.", re.IGNORECASE)
"""What a flag, a variable of AWS's images or a key has before its name."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "options",
        help="list every option, with what it does here",
        description="List LMI's options: what each accepts, its default, its environment "
        "variables, and what becomes of it under an engine.",
        examples=(
            "lmi-backend options",
            "lmi-backend options max_model_len",
            "lmi-backend options --tensor-parallel-size 4",
        ),
        takes_words=True,
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="show options with all of these in a name, an alias, a variable or the engine's own "
        "name. The name of an engine shows its own options. A variable SM_VLLM_…, a flag with its "
        "dashes and its value, or the name that another server uses shows what it means here",
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default=default_engine(), help="default %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    add_release(parser)
    parser.set_defaults(run=_options)


@dataclass(frozen=True, kw_only=True)
class OptionRow:
    name: str
    aliases: tuple[str, ...] = ()
    environment: tuple[str, ...]
    accepted: str
    default: object = None
    status: StatusWord
    detail: str
    help: str

    def has(self, words: Sequence[str]) -> bool:
        is_live = self.status in ("mapped", "passed")
        names = (self.name, *self.aliases, *self.environment, self.detail if is_live else "")
        return any(all(word.lower() in name.lower() for word in words) for name in names)


def _options(arguments: argparse.Namespace) -> int:
    rows: list[OptionRow] = []
    flags = [word.partition("=")[0] for word in arguments.words if word.startswith("-")]
    for word in flags or [" ".join(arguments.words)]:
        matches = _rows_for(word, arguments.engine, machine_of(arguments).release)
        rows += [row for row in matches if row not in rows]
    if not rows:
        return 1
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
        return 0
    for row in rows:
        _show(row)
    return 0


def _rows_for(word: str, engine: str, release: str) -> list[OptionRow]:
    if rows := _rows_of(word, engine, release):
        return rows
    say(f"no option or variable under {engine} has {printable(word)} in a name")
    for other in ENGINES:
        if other != engine and (rows := _rows_of(word, other, release)):
            say(f"under {other}, with --engine {other}:")
            return rows
    return []


def _rows_of(word: str, engine: str, release: str) -> list[OptionRow]:
    if owner := _engine_called(word):
        own = {option.name for option in OPTIONS if option.scope == owner}
        return [row for row in table(owner, release) if row.name in own or row.status == "passed"]
    rows = list(table(engine, release))
    words = [_plain(each) for each in word.split()]
    name = "_".join(words)
    # A key of any engine is no other server's word.
    meant = () if PREFIX + name in KEYS else meanings_of(name)
    named = [row for row in rows if {row.name, *row.aliases} & {*meant}] if word else []
    return named + [row for row in rows if row not in named and row.has(words)]


def _plain(word: str) -> str:
    match = _OTHERS.match(word)
    return word[match.end() if match else 0 :].replace("-", "_")


def _engine_called(word: str) -> str:
    for name, spec in SPECS.items():
        if word.lower() in (name, spec.title.lower(), spec.rolling_batch or name):
            return name
    return ""


def _show(row: OptionRow) -> None:
    default = "" if row.default in ("", 0, {}, [], None, False) else f" ({row.default})"
    is_live = row.status in ("mapped", "passed")
    meaning = f"    {row.help}\n" if is_live else ""
    sys.stdout.write(f"{row.name}{default}\n{meaning}    {row.status}: {row.detail}\n")
    if is_live:
        names = ", ".join([*row.aliases, *row.environment])
        also = f". Also: {names}" if names else ""
        sys.stdout.write(f"    accepted: {row.accepted}{also}\n")


def table(engine: str, release: str = "") -> Iterator[OptionRow]:
    """Yield a row for every option that LMI or an engine knows, by default the recorded release."""
    yield from (_row(option, engine) for option in OPTIONS if engine in option.engines)
    yield from _arguments(engine, release)
    for name, status in VARIABLES.items():
        yield OptionRow(
            name=name,
            environment=(name,),
            accepted="any text",
            status=status.word,
            detail=status.detail,
            help="Environment variable.",
        )


def _arguments(engine: str, release: str) -> Iterator[OptionRow]:
    implementation = implementation_of(engine)
    recorded = recorded_signature(implementation)
    if release:
        recorded = supposed_signature(implementation, release)
    if recorded is None:
        return
    listed = {key for key in KEYS if find_option(key, engine)}
    for name, argument in {**recorded.server, **recorded.arguments}.items():
        if PREFIX + name not in listed:
            of_server = "" if name in recorded.arguments else ", of its HTTP server"
            status = status_of(PREFIX + name, engine, recorded)
            yield OptionRow(
                name=PREFIX + name,
                environment=(f"OPTION_{name.upper()}",),
                accepted=shorten(argument.type),
                default=argument.default,
                status=status.word,
                detail=status.detail,
                help=f"Argument of {implementation}{of_server}, read by its own parser.",
            )


def _row(option: AnyOption, engine: str) -> OptionRow:
    status = option.status_under(engine)
    return OptionRow(
        name=option.name,
        aliases=option.aliases,
        environment=option.variables,
        accepted=option.kind.accepted,
        default=option.printed_default,
        status=status.word,
        detail=status.detail,
        help=option.help,
    )
