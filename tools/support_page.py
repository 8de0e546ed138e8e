"""tests/support/README.md: what each module that tests share gives, from its first line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SUPPORT: Final = Path(__file__).resolve().parent.parent / "tests" / "support"
PAGE: Final = SUPPORT / "README.md"
_HEAD: Final = """# What tests share

Tests import these modules as `tests.support`. Each row is the first line of its module.

| module | what it gives |
| --- | --- |"""


def support_page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield _HEAD
    for module in sorted(SUPPORT.glob("*.py")):
        about = ast.get_docstring(ast.parse(module.read_text("utf-8")))
        if module.name != "__init__.py" and about:
            yield f"| `{module.name}` | {about.splitlines()[0]} |"
