"""The contents of the documentation, docs/README.md, from the navigation in mkdocs.yml.

A page begins with its title and a line in italics: who it is for, and what he gets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parent.parent
CONTENTS: Final = ROOT / "docs" / "README.md"
_ABOUT: Final = re.compile(r"^# .+\n\n\*(For [^*]+)\*$", re.MULTILINE)


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


def about(page: Path, text: str) -> str:
    """Return who a page is for, and what he gets.

    Raises:
        SystemExit: it does not say so where it begins.
    """
    found = _ABOUT.search(text)
    if found is None:
        message = f"{page.relative_to(ROOT)}: no line *For …* below its title"
        raise SystemExit(message)
    return found[1].replace("\n", " ")


def contents() -> Iterator[str]:
    """Yield the lines of the contents."""
    for part, pages in navigation().items():
        yield f"## {part}\n"
        for title, page in pages.items():
            place = Path(os.path.relpath(page, CONTENTS.parent)).as_posix()
            yield f"- [{title}]({place}): {about(page, page.read_text(encoding='utf-8'))}"
        yield ""
