"""The blocks of code of a page of the documentation, from its top to its bottom."""

import re
from dataclasses import dataclass, replace

from tests.support.run.places import ROOT

_PART = re.compile(
    r"^#+ (?P<title>[^\n]+)$|^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    page: str
    title: str
    language: str
    text: str
    answer: str = ""
    """The JSON that stands below it."""


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page, which is named by its path in the repository."""
    found: list[Block] = []
    title = ""
    for part in _PART.finditer((ROOT / page).read_text(encoding="utf-8")):
        title = part["title"] or title
        if part["title"]:
            continue
        if part["language"] == "json" and found:
            found[-1] = replace(found[-1], answer=part["text"])
        else:
            found.append(Block(page, title, part["language"], part["text"]))
    return found
