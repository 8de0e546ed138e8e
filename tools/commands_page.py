"""docs/commands.md: every command, with its examples, from the command line itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from lmi_backend.cli.main import parser


def commands() -> Iterator[str]:
    """Yield the lines of the page after its introduction."""
    actions = parser()._actions
    (found,) = (each for each in actions if isinstance(each, argparse._SubParsersAction))
    yield "| command | what it does |"
    yield "| --- | --- |"
    for each in found._choices_actions:
        yield f"| [`{each.dest}`](#{each.dest}) | {each.help} |"
    yield "\n## Completion in your shell\n"
    yield "This needs `pip install shtab`. Then write the script for your shell:\n"
    yield from _examples(found.choices["completion"])
    for name, command in found.choices.items():
        yield f"\n## {name}\n"
        yield from _examples(command)
        yield "\n| exit status | meaning |"
        yield "| --- | --- |"
        yield from (f"| {status} | {meaning} |" for status, meaning in command.statuses.items())


def _examples(command: Any) -> Iterator[str]:
    yield "```shell"
    yield from command.examples
    yield "```"
