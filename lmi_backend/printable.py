"""Show a client's text where people read it: cut, on one line, with nothing that steers a terminal.

Request ids, names and values are a client's to choose: a megabyte, a line break that begins a line
of somebody else's log, or characters that turn the reading direction around.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

_NAMED = 20


def printable(text: str, limit: int = 120) -> str:
    """Return at most `limit` characters of a text, escaped where they are not printable."""
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else _escaped(char) for char in shown)[:limit]
    return shown if len(text) <= limit else f"{shown}… ({len(text)} characters)"


def cut(text: str, limit: int = 2000) -> str:
    """Return the beginning of a text; to cut it again changes nothing."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def listed(names: Iterable[str], none: str = "none") -> str:
    """Return names with commas between them, of many the first."""
    known = list(names)
    shown = ", ".join(printable(name) for name in known[:_NAMED])
    rest = len(known) - _NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown or none


def say(text: str) -> None:
    """Write a line to standard error, under the name of the command."""
    sys.stderr.write(f"lmi-backend: {text}\n")
    sys.stderr.flush()


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
