"""The page about a migration: what stays, what changes, what somebody must decide."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence


def page_of(
    *,
    name: str,
    what: str,
    settings: Sequence[Mapping[str, str]],
    changes: Sequence[str],
    decisions: Sequence[str],
    commands: Sequence[Sequence[str]],
) -> str:
    """Return the page as Markdown; `settings` are as `check --json` prints them."""
    carried = [each for each in settings if each["status"] in ("mapped", "passed")]
    others = [each for each in settings if each not in carried]
    lines = [
        f"# Migration of {_cell(name)}\n",
        f"{_cell(what)}.\n",
        "## What stays\n",
        "- Clients keep their bodies and paths: `/invocations`, `/endpoints/NAME/invocations`.",
        "",
        *_table(carried),
        "\n## What changes\n",
        *_items(changes),
        "- Clients use the new address, with an API key instead of a signature of AWS.",
        *(["", *_table(others)] if others else []),
        "\n## What needs your decision\n",
        *_items(decisions or ["Nothing."]),
        "\n## Next\n",
        "```sh",
        *map(shlex.join, commands),
        "```",
        "",
    ]
    return "\n".join(lines)


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
