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
    before: str = ""
    """All that stands between the title and it."""
    answer: str = ""
    """The JSON that stands below it."""


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page, which is named by its path in the repository."""
    found: list[Block] = []
    title, begin = "", 0
    whole = (ROOT / page).read_text(encoding="utf-8")
    for part in _PART.finditer(whole):
        if part["title"]:
            title, begin = part["title"], part.end()
            continue
        if part["language"] == "json" and found:
            found[-1] = replace(found[-1], answer=part["text"])
        else:
            before = whole[begin : part.start()]
            found.append(Block(page, title, part["language"], part["text"], before))
    return found
