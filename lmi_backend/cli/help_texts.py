"""Help of the commands: examples, exit statuses, and the nearest name."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

_USUAL: Final = {
    0: "it was done",
    1: "it failed",
    2: "an argument, an option or the environment is wrong",
}


class Parser(argparse.ArgumentParser):
    """Adds examples and exit statuses to its help, and says what may have been meant.

    Args:
        examples: command lines.
        statuses: meanings of exit statuses, where they differ from the usual ones.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        statuses: Mapping[int, str] = {},
        **more: Any,
    ) -> None:
        super().__init__(*args, **{"formatter_class": Formatter, **more})
        self.examples, self.statuses = examples, dict(sorted({**_USUAL, **statuses}.items()))
        if examples:
            lines = ["examples:", *(f"  {each}" for each in examples), "", "exit status:"]
            lines += [f"  {status}  {meaning}" for status, meaning in self.statuses.items()]
            self.epilog = "\n".join(lines)

    def error(self, message: str) -> NoReturn:
        """Write a usage error, with the nearest name that is accepted."""
        super().error(f"{message}{_meant(message, self)}")


class Formatter(argparse.HelpFormatter):
    """Wraps texts of one line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")
        return super()._fill_text(text, width, indent)


def _meant(message: str, parser: argparse.ArgumentParser) -> str:
    """Return what the user may have meant by an argument that is not accepted."""
    _, _, choice = message.partition("invalid choice: '")
    word, is_choice, accepted = choice.partition("' (choose from ")
    if is_choice:
        words = [each.strip(" '") for each in accepted.rstrip(")").split(",")]
        near = difflib.get_close_matches(word, words, 1)
    elif found := re.search(r"unrecognized arguments: (--[\w-]+)", message):
        options = list(_options(parser))
        if found[1] in options:
            return "; other commands have it: see --help of this one"
        near = difflib.get_close_matches(found[1], options, 1)
    else:
        near = []
    return f"; did you mean {near[0]}?" if near else ""


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options of a parser and of the commands below it."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _options(below)
