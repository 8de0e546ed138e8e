"""The tables of docs/migrating-from-lmi.md: where an answer differs from that of LMI's handlers.

They are tests/data/lmi_answers/kinds.json, of which tests/unit/test_lmi_answers.py says that it is
true and complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from named_tests import TESTS

KINDS = TESTS / "data" / "lmi_answers" / "kinds.json"
PAGE = TESTS.parent / "docs" / "migrating-from-lmi.md"
_BEGIN = "<!-- Made by `make docs` from tests/data/lmi_answers/kinds.json. -->\n"
_END = "<!-- The end of what is made. -->\n"


def lmi_pages() -> dict[Path, str]:
    """Return the page with the tables of today."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    made = "".join([before, _BEGIN, *(f"{line}\n" for line in _tables()), _END, after])
    return {PAGE: made}


def _tables() -> Iterator[str]:
    read: dict[str, list[dict[str, Any]]] = json.loads(KINDS.read_text(encoding="utf-8"))
    yield from _table(("kind", "handlers", "LMI", "here", "requests"), read["kinds"])
    yield ""
    yield from _table(("parameter", "LMI", "here", "requests"), read["parameters"])


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"{'| --- ' * len(columns)}|"
    for row in rows:
        yield f"| {' | '.join(str(row[name.lower()]) for name in columns)} |"
