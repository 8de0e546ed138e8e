"""docs/commands.md: every command, with its examples, from the command line itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from lmi_backend.cli.help_texts import EXAMPLES, STATUSES, USUAL
from lmi_backend.cli.main import parser


def commands_page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Commands\n"
    yield "*For people at a terminal: each command, an example, and its exit status.*\n"
    yield "`lmi-backend COMMAND --help` lists the arguments of a command.\n"
    yield "| command | what it does |"
    yield "| --- | --- |"
    for name, text in _helps():
        yield f"| [`{name}`](#{name}) | {text} |"
    yield "\n## Completion in your shell\n"
    yield "This needs `pip install shtab`. Then write the script for your shell:\n"
    yield "```shell"
    yield from EXAMPLES["completion"]
    yield "```"
    for name, _ in _helps():
        yield f"\n## {name}\n"
        yield "```shell"
        yield from EXAMPLES[name]
        yield "```\n"
        yield "| exit status | meaning |"
        yield "| --- | --- |"
        for each in STATUSES.get(name, USUAL):
            status, _, meaning = each.partition("  ")
            yield f"| {status} | {meaning} |"


def _helps() -> Iterator[tuple[str, str]]:
    """Yield name and help of each command."""
    for action in parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action._choices_actions:
                yield each.dest, each.help or ""
