"""Write the parts of pages that a run of tests measures, each between its two marks."""

import re
from collections.abc import Iterable
from pathlib import Path


def replace_part(page: Path, name: str, lines: Iterable[str]) -> None:
    """Write what was measured into its part of a page."""
    text = page.read_text(encoding="utf-8")
    part = rf"^(<!-- measured: {name} -->\n).*?^(<!-- end -->)$"
    found = re.search(part, text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no part {name}"
    made = "".join(f"{line}\n" for line in lines)
    page.write_text(text[: found.end(1)] + f"\n{made}\n" + text[found.start(2) :], "utf-8")


def rows(*heads: str, of: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (heads, ("---",) * len(heads), *of)]
