r"""Read Java `.properties` text, the grammar of `serving.properties`.

The grammar is that of `java.util.Properties.load`: `#` and `!` start comments, the key ends at
the first unescaped `=`, `:` or blank, a line that ends in an odd number of backslashes goes on
in the next, and `\uXXXX` names a UTF-16 code unit. Blanks at the end of a value belong to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lmi_backend.errors import ConfigurationError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Property:
    """A key and its value, and the line (from 1) where the key was written."""

    key: str
    value: str
    line: int


def read_properties(path: Path) -> list[Property]:
    """Return the properties of a file in its order; a repeated key appears again.

    Java reads Latin-1; LMI users write UTF-8. UTF-8 is tried first, then Latin-1.

    Raises:
        ConfigurationError: the file cannot be read, or holds a malformed escape.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    if b"\0" in data:
        raise ConfigurationError(f"{path}: is not a text file; accepted: lines of key=value")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, name=path.name)


def parse_properties(text: str, *, name: str = "serving.properties") -> list[Property]:
    """Parse `.properties` text; `name` is used in error messages only."""
    return [_split(line, number, name) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Join continued lines; drop blank and comment lines."""
    lines: list[tuple[int, str]] = []
    open_number: int | None = None
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = natural.lstrip(_BLANK)
        if open_number is None and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        body = line[:-1] if continues else line
        if open_number is None:
            lines.append((number, body))
        else:
            lines[-1] = (open_number, lines[-1][1] + body)
        open_number = (open_number or number) if continues else None
    return lines


def _split(line: str, number: int, name: str) -> Property:
    key_end = 0
    while key_end < len(line) and line[key_end] not in "=:" + _BLANK:
        key_end += 2 if line[key_end] == "\\" else 1
    rest = line[key_end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    where = f"{name}:{number}"
    return Property(_unescape(line[:key_end], where), _unescape(rest, where), number)


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped[:1] != "u":
            return _ESCAPES.get(escaped, escaped)
        if len(escaped) != len("uXXXX"):
            message = f"{where}: malformed escape \\{escaped}; accepted: \\u and four hex digits"
            raise ConfigurationError(message)
        return chr(int(escaped[1:], 16))

    units = re.sub(r"\\(u[0-9a-fA-F]{0,4}|.?)", replace, text, flags=re.DOTALL)
    # Java strings are UTF-16: two \u escapes may be the halves of one character.
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
