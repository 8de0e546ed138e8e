"""The contents of the documentation, docs/README.md, from the navigation in mkdocs.yml.

A page begins with the question that it answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
CONTENTS: Final = ROOT / "docs" / "README.md"


def navigation() -> dict[str, dict[str, Path]]:
    """Return the pages of each part of the site by their titles.

    Raises:
        SystemExit: a page of docs/ is in no part.
    """
    nav: list[dict[str, Any]] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    parts = {
        part: {title: ROOT / path for page in pages for title, path in page.items()}
        for each in nav
        for part, pages in each.items()
        if isinstance(pages, list)
    }
    named = {CONTENTS} | {page for pages in parts.values() for page in pages.values()}
    if stray := sorted(page.name for page in set(CONTENTS.parent.glob("*.md")) - named):
        message = f"mkdocs.yml: no part of `nav` has {', '.join(f'docs/{name}' for name in stray)}"
        raise SystemExit(message)
    return parts


def question(page: Path, text: str) -> str:
    """Return the question that a page answers.

    Raises:
        SystemExit: it does not begin with one.
    """
    first = text.partition("\n")[0]
    if not (first.startswith("# ") and first.endswith("?")):
        message = f"{page.relative_to(ROOT)}: its first line is not the question that it answers"
        raise SystemExit(message)
    return first.removeprefix("# ")


def contents() -> Iterator[str]:
    for part, pages in navigation().items():
        yield f"## {part}\n"
        for title, page in pages.items():
            place = Path(os.path.relpath(page, CONTENTS.parent)).as_posix()
            yield f"- [{title}]({place}): {question(page, page.read_text(encoding='utf-8'))}"
        yield ""
