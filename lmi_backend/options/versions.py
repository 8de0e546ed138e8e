"""The order of releases, candidates among them: 1.3.0rc20, 1.3.0rc22.post1, 1.3.0."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_VERSION: Final = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})*)(?:(a|b|rc)(\d{1,9}))?(?:\.?post(\d{1,9}))?(\.?dev\d*)?(?:\+.*)?"
)
_LONGEST: Final = 6
"""Numbers of a release that are compared; fewer are followed by zeros."""
_FINAL: Final = "z"
"""What a release has in the place of a candidate's letter: it is later than all of them."""

Order = tuple[tuple[int, ...], str, int, int]


@dataclass(frozen=True)
class Planned:
    """The release of an engine's library that a plan is made for."""

    version: str
    """Empty if the library does not say."""
    is_installed: bool
    """Whether the workers' interpreter has it; else it is the one of our record."""


def order_of(version: str) -> Order | None:
    """Return what sorts releases as Python's packaging does.

    Returns:
        None for a text that is no version, and for a build between two releases (`dev`), which
        says nothing of what it has.
    """
    found = _VERSION.fullmatch(version.strip().removeprefix("v"))
    if found is None or found[5]:
        return None
    numbers = [int(number) for number in found[1].split(".")][:_LONGEST]
    padded = (*numbers, *[0] * (_LONGEST - len(numbers)))
    return padded, found[2] or _FINAL, int(found[3] or 0), int(found[4] or 0)


def is_later(version: str, than: str) -> bool | None:
    """Tell whether a release came after another; None where that cannot be said."""
    first, second = order_of(version), order_of(than)
    return None if first is None or second is None else first > second
