"""Build the documentation as a site into build/site: `make site`.

    .venv-site/bin/python tools/build_site.py

Pages stand in docs/, deploy/, benchmarks/ and at the root, where GitHub shows them. They and what
they link to are laid out in the same folders under .cache/site, so that every link stays as it is.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import MkDocsException

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ROOT / ".cache" / "site"
_STYLE: Final = ROOT / "docs" / "site.css"
_FOLDERS: Final = (".", "docs", "deploy", "benchmarks")
_LINK: Final = re.compile(r"\]\((?!https?:|#)([^)#\s]+)|(?:src|srcset)=\"(?!https?:)([^\"]+)\"")


def main() -> int:
    logging.basicConfig(format="site: %(message)s", level=logging.WARNING)
    lay_out(PAGES)
    config = load_config(str(ROOT / "mkdocs.yml"), strict=True)
    try:
        build(config)
    except MkDocsException as error:
        sys.stderr.write(f"site: {error}\n")
        return 1
    sys.stdout.write(f"site: {config.site_dir}\n")
    return 0


def lay_out(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    pages = [page for folder in _FOLDERS for page in sorted((ROOT / folder).glob("*.md"))]
    files = {*pages, _STYLE}
    while pages:
        linked = set(_linked(pages.pop())) - files
        files |= linked
        pages += [file for file in linked if file.suffix == ".md"]
    for file in files:
        copy = target / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def _linked(page: Path) -> Iterator[Path]:
    """Yield the files of this repository that a page shows or links to."""
    for found in _LINK.finditer(page.read_text(encoding="utf-8")):
        file = (page.parent / (found[1] or found[2])).resolve()
        if file.is_file() and file.is_relative_to(ROOT):
            yield file


if __name__ == "__main__":
    sys.exit(main())
