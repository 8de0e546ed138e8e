"""The page about a migration: what stays, what changes, what somebody must decide."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_CARRIED: Final = ("mapped", "passed")


@dataclass(frozen=True)
class Migration:
    name: str
    what: str
    machine: str
    settings: Sequence[Mapping[str, str]]
    """As `check --json` prints them, without secrets."""
    changes: Sequence[str]
    decisions: Sequence[str]
    commands: Sequence[Sequence[str]]


def page_of(migration: Migration) -> str:
    return "\n".join([*_lines(migration), ""])


def _lines(migration: Migration) -> Iterator[str]:
    carried = [each for each in migration.settings if each["status"] in _CARRIED]
    other = [each for each in migration.settings if each["status"] not in _CARRIED]
    yield f"# Migration of {_cell(migration.name)}\n"
    yield f"{_cell(migration.what)}. Planned for {migration.machine}.\n"
    yield "## What stays\n"
    yield "- Clients keep their bodies and paths: `/invocations`, `/endpoints/NAME/invocations`."
    yield ""
    yield from _table(carried)
    yield "\n## What changes\n"
    yield from _items(migration.changes)
    yield "- Clients use the new address, with an API key instead of a signature of AWS."
    if other:
        yield ""
        yield from _table(other)
    yield "\n## What needs your decision\n"
    yield from _items(migration.decisions or ["Nothing."])
    yield "\n## Next\n"
    yield "```sh"
    yield from map(shlex.join, migration.commands)
    yield "```"


def _table(settings: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if not settings:
        return
    yield "| setting | value | where | becomes | |"
    yield "| --- | --- | --- | --- | --- |"
    for each in settings:
        cells = (each[name] for name in ("name", "value", "origin", "status", "detail"))
        yield f"| {' | '.join(map(_cell, cells))} |"


def _items(texts: Iterable[str]) -> Iterator[str]:
    yield from (f"- {' '.join(text.split())}" for text in texts)


def _cell(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return " ".join(escaped.split())
