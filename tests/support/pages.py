"""The examples of a page of the documentation."""

import re
from pathlib import Path

_BLOCK = re.compile(
    r"^```(?P<language>sh|python|js)\n(?P<text>.*?)^```\n(?:```json\n(?P<answer>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)


def section(page: Path, title: str) -> str:
    """Return the text under a heading."""
    return page.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def examples(text: str, heading: str = "##") -> list[tuple[str, str, str, str]]:
    """Return title, language, text and JSON answer of each, by headings of a level."""
    found = []
    for part in text.split(f"\n{heading} ")[1:]:
        title, _, rest = part.partition("\n")
        for block in _BLOCK.finditer(rest):
            found.append((title, block["language"], block["text"], block["answer"] or ""))
    return found
