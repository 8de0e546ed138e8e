"""What somebody may have meant: a known name that is spelt alike, or LMI's name for theirs."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from lmi_backend.options.foreign_words import MEANINGS, OPPOSITES

_LONGEST_WORD: Final = 100
_COMPARED: Final = 24
"""Known names that a name is compared with."""
_SHORT: Final = 3
"""Letters of a part of a name that means another thing as soon as one of them differs: tp, pp; gpu,
cpu; min, max."""
_LONG: Final = 6
"""Letters from which a part may have two slips of the hand."""
_ABBREVIATED: Final = 3
"""Letters that an abbreviation has at least: len for length, seq for sequence."""
_BEGINNING: Final = re.compile(r"options?[._]|SERVING_|SM_VLLM_", re.IGNORECASE)
_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_REMARK: Final = re.compile(r"\s#(?!\{)")
# Structured values, and templates, in which such a sign may stand for something.
_STRUCTURED: Final = re.compile(r"\s*[\[{]|.*?(\n|\{\{|\{%)", re.DOTALL)
REMARK: Final = (
    "has a remark at its end, which is a part of the value here; "
    "accepted: the remark on a line of its own"
)
"""The problem of a value in which `remark_in` finds a remark."""


def closest(word: str, known: Iterable[str]) -> str:
    """Return a hint naming what somebody may have meant, or nothing.

    It names the known name that is spelt almost like theirs, or LMI's name for an option of another
    server. A name that is only similar is not enough: it would lead to another option.
    """
    if len(word) > _LONGEST_WORD:
        return ""
    words = tuple(known)
    if near := _spelt_like(word, words):
        return f"; did you mean {near}?"
    opposite = OPPOSITES.get(_plain(word), "")
    if opposite in words:
        return f"; its opposite is {opposite}"
    meant = next((name for name in MEANINGS.get(_plain(word), ()) if name in words), "")
    return f"; LMI's name for it is {meant}" if meant else ""


def _spelt_like(word: str, known: tuple[str, ...]) -> str:
    """Return the known name that is spelt almost as a name; empty for none, or for several."""
    # To compare a word with all that are known takes milliseconds, and a file may hold many.
    index = _by_pairs(known)
    shared = Counter(other for pair in _pairs(word) for other in index.get(pair, ()))
    alike = [other for other, _ in shared.most_common(_COMPARED)]
    slips = {other: _slips(word, other) for other in alike}
    near = [other for other in alike if slips[other] >= 0]
    fewest = min((slips[other] for other in near), default=0)
    return next((other for other in near if slips[other] == fewest), "")


def _slips(word: str, other: str) -> int:
    """Return by how many letters two names differ; -1 if they are names of different things."""
    if _plain(word) == _plain(other):
        return 0
    parts, others = _parts(word), _parts(other)
    if len(parts) != len(others):
        # A part that is missing is another word; a missing or further separator is a slip.
        return 1 if "".join(parts) == "".join(others) else _in_one(word, other)
    slips = 0
    for part, one in zip(parts, others, strict=True):
        if part == one or _is_short_for(part, one):
            continue
        found = _distance(part, one)
        if found > _allowed(part, one, parts):
            return -1
        slips += found
    return slips


def _allowed(part: str, other: str, parts: list[str]) -> int:
    """Return the slips that a part may have and still mean the same."""
    shorter = min(len(part), len(other))
    if shorter <= _SHORT:
        # With several parts that are equal, the last one may be a slip: effort_mat.
        return int(len(parts) > _SHORT - 1 and parts[-1] == part)
    return 2 if shorter >= _LONG else 1


def _in_one(word: str, other: str) -> int:
    """Compare names whose separators differ, by all their letters."""
    first, second = _plain(word), _plain(other)
    if min(len(first), len(second)) < 2 * _LONG:
        return -1
    return found if (found := _distance(first, second)) <= 1 else -1


def _is_short_for(part: str, other: str) -> bool:
    shorter, longer = sorted((part, other), key=len)
    return len(shorter) >= _ABBREVIATED and longer.startswith(shorter.removesuffix("s"))


def _distance(first: str, second: str) -> int:
    """Return the letters to insert, remove, change or swap until one is the other."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for index, letter in enumerate(first):
        new = [index + 1]
        for place, other in enumerate(second):
            cost = min(row[place + 1] + 1, new[place] + 1, row[place] + (letter != other))
            is_swap = index and place and letter == second[place - 1]
            if is_swap and first[index - 1] == other:
                cost = min(cost, before[place - 1] + 1)
            new.append(cost)
        before, row = row, new
    return row[-1]


def _stem(word: str) -> str:
    """Return a name without the prefix that says only where it is written."""
    return _BEGINNING.sub("", word, count=1) if _BEGINNING.match(word) else word


def _parts(word: str) -> list[str]:
    return [part.lower() for part in _PART.findall(_stem(word))]


def _plain(word: str) -> str:
    return re.sub(r"[\W_]", "", _stem(word)).lower()


def _pairs(word: str) -> set[str]:
    """Return each two letters that stand together."""
    stem = _plain(word)
    return {stem[index : index + 2] for index in range(len(stem) - 1)}


@functools.lru_cache(maxsize=8)
def _by_pairs(words: tuple[str, ...]) -> Mapping[str, list[str]]:
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
