"""Fill the parts of a page that are made: those between `<!-- made: … -->` and `<!-- end -->`.

    <!-- made: NAME -->                                     what `make docs` has under this name
    <!-- made: table FILE KEY | HEAD | HEAD=FORMAT … -->    a row for each entry of a JSON file

KEY leads to a list where the file is none. A format is that of Python; a cell is empty where its
value is. Tests and modules that a table names must exist.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_PART: Final = re.compile(r"^(<!-- made: (.+?) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)
_PLACE: Final = re.compile(r"`((?:lmi_backend|tests|tools)/[\w./]+\.py)(?:::(\w+))?`")
_BAR: Final = re.compile(r"(?<!\\)\|")
_ESCAPED: Final = r"\\|"
MARK: Final = re.compile(r"^<!-- made: ([\w-]+)", re.MULTILINE)
"""How a part begins, with its name."""

Makers = Mapping[str, Callable[[], Iterable[str]]]


def filled(text: str, makers: Makers) -> str:
    """Return a page with the parts of today.

    Raises:
        SystemExit: a part has no end or no maker, or the page names what is not there.
    """
    names = MARK.findall(text)
    if len(_PART.findall(text)) != len(names):
        raise SystemExit(f"a page has a part without its end; its parts: {', '.join(names)}")
    if gone := sorted(set(names) - makers.keys() - {"table"}):
        raise SystemExit(f"a page has parts that nothing makes: {', '.join(gone)}")

    def part(found: re.Match[str]) -> str:
        name, _, words = found[2].partition(" ")
        lines = json_table(words) if name == "table" else makers[name]()
        made = "".join(f"{line}\n" for line in lines)
        return f"{found[1]}\n{made}\n{found[3]}"

    whole = _PART.sub(part, text)
    check_places(whole)
    return whole


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(heads)
    for cells in (heads, ["---"] * len(heads), *rows):
        yield f"| {' | '.join(_BAR.sub(_ESCAPED, cell) for cell in cells)} |"


def grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    """Return the names of each key, in the order of the first ones."""
    found: dict[Any, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return found


def coded(names: Iterable[str]) -> str:
    """Return names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)


def json_table(words: str) -> Iterator[str]:
    """Yield the lines of a table of a JSON file."""
    place, *columns = words.split(" | ")
    formats = {
        head: form or f"{{{head}}}" for head, _, form in (each.partition("=") for each in columns)
    }
    rows = ([_cell(form, row) for form in formats.values()] for row in _entries(place))
    yield from table(formats, rows)


def _entries(place: str) -> list[dict[str, Any]]:
    file, _, key = place.partition(" ")
    read = json.loads((ROOT / file).read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = read[key] if key else read
    return rows


def _cell(form: str, row: dict[str, Any]) -> str:
    """Return a cell; an empty one where a field of it is empty."""
    fields = (name for _, name, _, _ in Formatter().parse(form) if name)
    return "" if any(row[name] == "" for name in fields) else form.format_map(row)


def check_places(text: str) -> None:
    """Refuse a text that names a module, or a test as tests/FILE::FUNCTION, which is not there.

    Raises:
        SystemExit: it does.
    """
    for file, function in _PLACE.findall(text):
        if not (ROOT / file).is_file() or (function and function not in _functions(file)):
            message = f"a page names {file}{'::' * bool(function)}{function}, which is not there"
            raise SystemExit(message)


@cache
def _functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))
