"""The table of docs/clients.md: which programs run unchanged, as tests show.

The table is tests/data/clients.json. A row names its client's package, whose version is that of the
lock, and the test that runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmark.perf_analyzer import VERSION
from licenses import pins
from named_tests import TESTS, check_test

TABLE = TESTS / "data" / "clients.json"
PAGE = TESTS.parent / "docs" / "clients.md"
_BEGIN = "<!-- Made by `make docs` from tests/data/clients.json. -->\n"
_END = "<!-- The end of what is made. -->\n"
_COLUMNS = {
    "client": "client",
    "version": "version",
    "url": "base URL",
    "key": "key",
    "change": "what else must change",
    "test": "shown by",
}
# Its package on PyPI is a place-holder.
_UNPACKAGED = {"perf_analyzer": VERSION}


def clients_page() -> str:
    """Return the page with the table of today.

    Raises:
        SystemExit: a row names a test that is not there.
    """
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return "".join([before, _BEGIN, *(f"{line}\n" for line in _table()), _END, after])


def rows() -> list[dict[str, str]]:
    """Return the table's rows."""
    read: list[dict[str, str]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return read


def _table() -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS.values())} |"
    yield f"{'| --- ' * len(_COLUMNS)}|"
    versions = _versions()
    for row in rows():
        check_test(row["test"], f"{TABLE.name}: {row['client']}")
        file = Path(row["test"].partition("::")[0])
        shown = row | {
            "version": versions.get(row["version"], row["version"]),
            "test": f"`{file}`",
        }
        yield f"| {' | '.join(shown[name] for name in _COLUMNS)} |"


def _versions() -> dict[str, str]:
    pinned = [pin.partition("==") for pin in pins("clients.txt")]
    return {name: version for name, _, version in pinned} | _UNPACKAGED
