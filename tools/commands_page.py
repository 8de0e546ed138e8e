"""docs/commands.md: what `--help` prints of each command, without what an earlier one has said."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from lmi_backend.cli.main import parser

_WIDTH: Final = 96
_HELP: Final = re.compile(r"^  -h, --help +.*\n", re.MULTILINE)


def commands() -> Iterator[str]:
    """Yield the lines of the page after its introduction."""
    yield "```"
    yield from _sections(parser(), seen=set())
    yield "```"
    actions = parser()._actions
    (found,) = (each for each in actions if isinstance(each, argparse._SubParsersAction))
    seen: set[str] = set()
    for name, command in found.choices.items():
        yield f"\n## {name}\n"
        yield "```"
        yield from _sections(command, seen)
        yield "```"


def _sections(command: argparse.ArgumentParser, seen: set[str]) -> Iterator[str]:
    """Yield what a command prints, without the usage and what was printed before."""
    usual: Any = command.formatter_class
    command.formatter_class = partial(usual, width=_WIDTH)
    _, *sections = _HELP.sub("", command.format_help()).strip().split("\n\n")
    shown = [each for each in sections if each not in seen and each != "options:"]
    seen.update(shown)
    yield "\n\n".join(shown)
