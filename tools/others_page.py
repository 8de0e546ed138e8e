"""The tables of docs/migrating-from-others.md: where an answer differs from those of other servers.

They are kinds.json of tests/data/vllm_server, vllm_pooling and recorded, of which
tests/integration says that they are true and complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from named_tests import TESTS

PAGE = TESTS.parent / "docs" / "migrating-from-others.md"
_TABLES = {
    "vllm_server": ("kind", "vllm", "here"),
    "vllm_pooling": ("kind", "vllm", "here"),
    "recorded": ("kind", "server", "there", "here"),
}
_TITLES = {"vllm": "vLLM's server"}


def others_pages() -> dict[Path, str]:
    """Return the page with the tables of today."""
    text = PAGE.read_text(encoding="utf-8")
    for name, columns in _TABLES.items():
        begin = f"<!-- Made by `make docs` from tests/data/{name}/kinds.json. -->\n"
        end = f"<!-- The end of {name}. -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        made = "".join(f"{line}\n" for line in _table(name, columns))
        text = f"{before}{begin}{made}{end}{after}"
    return {PAGE: text}


def _table(name: str, columns: tuple[str, ...]) -> Iterator[str]:
    read = (TESTS / "data" / name / "kinds.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(read)
    yield f"| {' | '.join(_TITLES.get(each, each) for each in columns)} |"
    yield f"{'| --- ' * len(columns)}|"
    for row in rows:
        yield f"| {' | '.join(row[each] for each in columns)} |"
