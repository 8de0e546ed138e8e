"""What somebody may have meant: the known word most like theirs, or a remark behind a value."""

from __future__ import annotations

import difflib
import functools
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from lmi_backend.options.option import PREFIX

_LONGEST_WORD: Final = 100
_COMPARED: Final = 24
"""Known words that a word is compared with."""
_REMARK: Final = re.compile(r"\s#(?!\{)")
# Structured values, and templates, in which such a sign may stand for something.
_STRUCTURED: Final = re.compile(r"\s*[\[{]|.*?(\n|\{\{|\{%)", re.DOTALL)
REMARK: Final = (
    "ends in a remark, which is a part of the value here; accepted: the remark on a line of its own"
)
"""What is wrong with a value that `remark_in` tells of."""


def closest(word: str, known: Iterable[str]) -> str:
    """Return a hint naming the known word that is most like this one, or nothing."""
    if len(word) > _LONGEST_WORD:
        return ""
    # To compare a word with all that are known takes milliseconds, and a file may hold many.
    index = _by_pairs(tuple(known))
    shared = Counter(other for pair in _pairs(word) for other in index.get(pair, ()))
    alike = [other for other, _ in shared.most_common(_COMPARED)]
    near = difflib.get_close_matches(word, alike, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""


def _pairs(word: str) -> set[str]:
    """Return each two letters that stand together; the prefix of most keys says nothing."""
    stem = word.removeprefix(PREFIX)
    return {stem[index : index + 2] for index in range(len(stem) - 1)}


@functools.lru_cache(maxsize=8)
def _by_pairs(words: tuple[str, ...]) -> dict[str, list[str]]:
    index: dict[str, list[str]] = {}
    for word in words:
        for pair in _pairs(word):
            index.setdefault(pair, []).append(word)
    return index


def remark_in(value: str) -> bool:
    """Tell whether a value seems to end in a remark: `awq   # as published`.

    In a file of properties, for LMI too, a remark is a line of its own.
    """
    return bool(_REMARK.search(value)) and not _STRUCTURED.match(value)
