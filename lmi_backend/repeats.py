"""Count what the patterns and grammars of structured outputs repeat.

Clients write these texts, so each is read once from its beginning to its end. No expression of this
module can match the same characters in two ways, and what is read piece by piece has a bound.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

HUGE: Final = 10**9
"""A count that no bound allows. Larger numbers say no more, and make arithmetic slow."""
_DIGITS: Final = 9
_OPEN: Final = 8
"""What a `?`, `*` or `+` counts: 500 in a row take xgrammar 10 s, a repetition of 1,000 0.1 s."""
_ESCAPE: Final = r"\\[ux]\{[0-9A-Fa-f]{1,6}\}|\\."
_PLAIN: Final = re.compile(rf"(?:[^\\\[({{)?*+]|{_ESCAPE})+", re.DOTALL)
"""Characters that stand for themselves, and escapes."""
_CHARACTER: Final = re.compile(rf"{_ESCAPE}|.", re.DOTALL)
_CLASS: Final = re.compile(r"\[[^\]\\]*(?:\\.[^\]\\]*)*", re.DOTALL)
_GROUP: Final = re.compile(r"\((?:\?[:=!])?")
_SIGNS: Final = re.compile(r"[?*+]+")
_RANGE: Final = re.compile(r"\{[\s\d,]*")
_VERBOSE: Final = re.compile(r"\(\?[A-Za-wyz^-]{0,16}x")
"""A flag of Rust's and Python's patterns that allows comments, also within a range."""
_NUMBER: Final = re.compile(r"\d+")
# A range of EBNF may have comments, and Lark writes `~1..3` too. What comes after a comment's sign
# counts to the end of its line: it may be a text in quotes, with a range behind it.
_REPETITION: Final = re.compile(
    r"[{~][\s,]*(?=[\d#/])[\s\d,.]*(?P<comments>(?:(?:#|//)[^\n]*(?:\n|$)[\s\d,.]*)*)"
)


class Cost(NamedTuple):
    """What a text holds."""

    repeats: int
    """Characters that are repeated or optional, written out."""
    parts: int
    """Pieces in which the text was read: groups, classes, repetitions and what is between them."""


def cost_of_pattern(pattern: str, most: Cost) -> Cost:
    """Return what a regular expression holds; stop where it is more than `most`.

    `a{1,20}` repeats 20, `(a{1,20}b){5}` 105; each of `?`, `*` and `+` counts as 8. A text that is
    no pattern has some number too.
    """
    reader = _PatternReader(pattern)
    at = 0
    while at < len(pattern) and reader.repeats <= most.repeats and reader.parts <= most.parts:
        at = reader.take(at)
    return Cost(reader.repeats, reader.parts)


def cost_of_grammar(grammar: str, most: Cost) -> Cost:
    """Return the same of a grammar, as far as its text tells: a rule may repeat another.

    Those in quotes and comments count too: what is quoted differs between kinds of grammars.
    """
    signs = sum(map(grammar.count, "?*+")) * _OPEN
    largest = parts = 0
    for match in _REPETITION.finditer(grammar):
        is_closed = grammar.startswith("}", match.end())
        if is_closed or match["comments"] or match[0].startswith("~"):
            largest = max(largest, _largest(match[0]))
        parts += 1
        if parts > most.parts or largest > most.repeats:
            break
    return Cost(signs + largest, parts)


class _PatternReader:
    """Counts while it reads a pattern piece by piece."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.repeats = self.parts = 0
        # For each open group: characters once, characters repeated; then those of the last piece.
        self._groups = [[0, 0]]
        self._last = [0, 0]
        self._has_class_ends = True
        self._is_verbose = _VERBOSE.search(pattern) is not None

    def take(self, at: int) -> int:
        """Count the piece that begins there, and return its end."""
        self.parts += 1
        match self._pattern[at]:
            case "(":
                self._groups.append([0, 0])
                self._last = [0, 0]
                return _end(_GROUP, self._pattern, at)
            case ")" if len(self._groups) > 1:
                self._last = self._groups.pop()
                self._add(self._last)
                return at + 1
            case "?" | "*" | "+":
                self._repeat([self._last[0], self._last[1] + _OPEN])
                return _end(_SIGNS, self._pattern, at)
            case "{" if (end := self._range_end(at)) > at:
                times = max(1, _largest(self._pattern[at:end]))
                self._repeat([0, min(HUGE, sum(self._last) * times)])
                return end
            case "{" if self._may_hide_a_range(at):
                self._repeat([0, HUGE])
        return self._take_characters(at)

    def _take_characters(self, at: int) -> int:
        """Count a class, or characters as they are."""
        end, count = max(_end(_PLAIN, self._pattern, at), at + 1), 1
        if self._pattern[at] == "[":
            end = self._class_end(at) or end
        elif len(self._groups) > 1:
            # Outside of groups only the last character can be repeated.
            count = len(_CHARACTER.findall(self._pattern, at, end))
        self._last = [1, 0]
        self._add([count, 0])
        return end

    def _class_end(self, at: int) -> int:
        """Return the end of a class, or 0. Where one has no end, none after it has."""
        if self._has_class_ends:
            end = _end(_CLASS, self._pattern, at)
            if self._pattern.startswith("]", end):
                return end + 1
            self._has_class_ends = False
        return 0

    def _range_end(self, at: int) -> int:
        end = _end(_RANGE, self._pattern, at)
        return end + 1 if self._pattern.startswith("}", end) else at

    def _may_hide_a_range(self, at: int) -> bool:
        end = _end(_RANGE, self._pattern, at)
        return self._is_verbose and self._pattern.startswith("#", end)

    def _repeat(self, last: list[int]) -> None:
        """Count the last piece again: it is repeated."""
        self.repeats += last[1] - self._last[1]
        self._add([last[0] - self._last[0], last[1] - self._last[1]])
        self._last = last

    def _add(self, counts: list[int]) -> None:
        self._groups[-1][0] += counts[0]
        self._groups[-1][1] += counts[1]


def _end(expression: re.Pattern[str], text: str, at: int) -> int:
    match = expression.match(text, at)
    return at if match is None else match.end()


def _largest(text: str) -> int:
    numbers = _NUMBER.findall(text)
    return max((HUGE if len(each) > _DIGITS else int(each) for each in numbers), default=0)
