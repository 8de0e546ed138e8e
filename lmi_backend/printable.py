"""Show a client's text where people read it: cut, on one line, with nothing that steers a terminal.

Request ids, names and values are a client's to choose: a megabyte, a line break that begins a line
of somebody else's log, or characters that turn the reading direction around. Sizes in bytes are
shown too.
"""

from __future__ import annotations

import contextlib
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

MIB: Final = 1 << 20
GIB: Final = 1 << 30
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_bytes(count: float) -> str:
    """Return a number of bytes for people, for example "141.1 GiB"."""
    size, unit = float(count), 0
    # Rounded as it will be shown: 1023.96 KiB is 1.0 MiB.
    while round(abs(size), 1) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


_NAMED = 20
# Of several words: clients write less of that kind, and an engine may quote them.
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)+)(?![\w-])")
# A terminal that is paused, or a log reader that hangs, must not stop who writes.
_READER_SECONDS = 1.0


def printable(text: str, limit: int = 120) -> str:
    """Return at most `limit` characters of a text, escaped where they are not printable."""
    line = text[:limit]
    if not line.isprintable():
        line = "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
        )[:limit]
    return line if len(text) <= limit else f"{line}… ({len(text)} characters)"


def as_utf_8(text: str) -> str:
    """Return a name of a file, or an argument, as UTF-8 has it; Python reads it by the locale."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text


def cut(text: str, limit: int = 2000) -> str:
    """Return the beginning of a text; to cut it again changes nothing."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def with_options(text: str) -> str:
    """Return a text of an engine, whose flags are options here: `option.max_model_len`."""
    return _FLAG.sub(lambda flag: f"option.{flag[1].replace('-', '_')}", text)


def listed(names: Iterable[str], none: str = "none") -> str:
    """Return names with commas between them, of many the first."""
    all_names = list(names)
    text = ", ".join(printable(name) for name in all_names[:_NAMED])
    rest = len(all_names) - _NAMED
    return f"{text} and {rest} more" if rest > 0 else text or none


def say(text: str, level: str = "INFO") -> None:
    """Write a line to standard error, under the name of the command.

    The line is lost if nobody reads it or the disk is full: a server outlives its log.
    """
    log(_line(level, as_utf_8(text)))


@contextlib.contextmanager
def speaking(line: Callable[[str, str], str]) -> Iterator[None]:
    """Have `say` write its lines, from level and text, so until the end of the block."""
    global _line  # noqa: PLW0603  one process has one log
    previous, _line = _line, line
    try:
        yield
    finally:
        _line = previous


def _plain(_level: str, text: str) -> str:
    return f"lmi-backend: {text}\n"


_line: Callable[[str, str], str] = _plain


def log(text: str) -> None:
    """Write a text to standard error; it is lost if it cannot be written within a second."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if _has_reader():
            sys.stderr.write(text)
            sys.stderr.flush()


def _has_reader() -> bool:
    """Tell whether standard error takes a line now; what is no file always does."""
    try:
        descriptor = sys.stderr.fileno()
        return bool(select.select([], [descriptor], [], _READER_SECONDS)[1])
    except (OSError, ValueError):
        return True
