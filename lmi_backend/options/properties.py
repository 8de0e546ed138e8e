r"""Read Java `.properties` text, the grammar of `serving.properties`.

The grammar is that of `java.util.Properties.load`. `#` and `!` start comments. The key stops at
the first unescaped `=`, `:` or blank. An odd number of backslashes at the end of a line continues
it in the next. `\uXXXX` names a UTF-16 code unit. Blanks at the end of a value belong to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lmi_backend.errors import ConfigurationError
from lmi_backend.files import read_bounded
from lmi_backend.printable import MIB

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_MOST_BYTES = 4 * MIB
_MOST_KEYS = 1000
"""LMI and its engines have had 700 keys in all."""


@dataclass(frozen=True)
class Property:
    """A key and its value, and the line (from 1) where the key was written."""

    key: str
    value: str
    line: int
    flag: str = ""
    """What was written on the command line instead; empty for a line of a file."""


def read_properties(path: Path) -> list[Property]:
    """Return the properties of a file in its order; a repeated key appears again.

    Java reads Latin-1; LMI users write UTF-8. UTF-8 is tried first, then Latin-1.

    Raises:
        ConfigurationError: the file cannot be read, is too large, or holds a malformed escape.
    """
    try:
        data = read_bounded(path, _MOST_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    if b"\0" in data:
        raise ConfigurationError(f"{path}: is not a text file; accepted: lines of key=value")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    properties = parse_properties(text, name=path.name)
    for each in properties:
        # No argument, path or variable can hold it.
        if "\0" in each.key + each.value:
            problem = "\\u0000 is not a valid character; accepted: any other character"
            raise ConfigurationError(f"{path.name}:{each.line}: {problem}")
    if len(properties) > _MOST_KEYS:
        problem = f"has {len(properties)} keys; accepted: at most {_MOST_KEYS}"
        raise ConfigurationError(f"{path}: {problem}")
    return properties


def as_property(key: str, value: str) -> str:
    """Return a line that `parse_properties` reads as this key and value."""
    escaped = value.replace("\\", "\\\\")
    for letter, char in _ESCAPES.items():
        escaped = escaped.replace(char, f"\\{letter}")
    return f"{key}=\\{escaped}" if escaped.startswith(" ") else f"{key}={escaped}"


def parse_properties(text: str, *, name: str = "serving.properties") -> list[Property]:
    """Parse `.properties` text; `name` is used in error messages only."""
    return [_split(line, number, name) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Join continued lines; drop blank and comment lines."""
    lines: list[tuple[int, list[str]]] = []
    is_open = False
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = natural.lstrip(_BLANK)
        if not is_open and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if not is_open:
            lines.append((number, []))
        lines[-1][1].append(line[:-1] if continues else line)
        is_open = continues
    return [(number, "".join(parts)) for number, parts in lines]


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
