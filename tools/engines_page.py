"""The first table of docs/engines.md: what each engine does in each mode, and which test shows it.

It is tests/data/engines.json. A cell names a test, says `no` and why, or `unverified`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from page_parts import ROOT, table


def engines() -> Iterator[str]:
    """Yield the lines of the table, and of the lists that its cells refer to."""
    read = json.loads((ROOT / "tests" / "data" / "engines.json").read_text(encoding="utf-8"))
    columns: dict[str, str] = read["columns"]
    tests: list[str] = []
    reasons: list[str] = []
    rows = [
        [row["engine"], row["mode"], row["chosen"]]
        + [_cell(row[name], tests, reasons) for name in columns]
        for row in read["rows"]
    ]
    yield from table(("engine", "mode", "chosen by", *columns.values()), rows)
    yield "\n**Why not:**\n"
    yield from (f"- {_letter(number)}: {reason}" for number, reason in enumerate(reasons))
    yield "\n<details markdown><summary>The tests, by number</summary>\n"
    yield from [*(f"{n}. `tests/{test}`" for n, test in enumerate(tests, start=1)), "\n</details>"]


def _cell(text: str, tests: list[str], reasons: list[str]) -> str:
    if text == "unverified":
        return "*not run*"
    if text.startswith("no: "):
        return f"no ({_letter(_index_of(text.removeprefix('no: '), reasons))})"
    return f"yes ({_index_of(text, tests) + 1})"


def _index_of(item: Any, items: list[Any]) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)


def _letter(number: int) -> str:
    return chr(ord("a") + number)
