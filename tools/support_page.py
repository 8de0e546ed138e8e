"""The table of tests/support/README.md: what each module that tests share gives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from page_parts import ROOT, table

SUPPORT: Final = ROOT / "tests" / "support"


def support() -> Iterator[str]:
    """Yield the lines of the table: the first line of each module."""
    modules = [each for each in sorted(SUPPORT.glob("*.py")) if each.name != "__init__.py"]
    rows = ((f"`{each.name}`", _about(each.read_text("utf-8"))) for each in modules)
    yield from table(("module", "what it gives"), rows)


def _about(source: str) -> str:
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
