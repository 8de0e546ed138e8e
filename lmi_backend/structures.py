"""How much a client may ask of the compiler of structured outputs.

A grammar, a schema or a list of choices is read on the loop that hands out all tokens and compiled
on the cores that make them, before its own first token. What it costs depends little on its length:
50 bytes of a pattern keep vLLM 0.32's loop busy for more than 25 s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lmi_backend.errors import RequestError
from lmi_backend.printable import printable

_JSON: Final = frozenset({"json", "guided_json", "structural_tag"})
"""Fields whose strings are JSON."""
_PATTERNS: Final = frozenset({"pattern", "regex", "guided_regex", "whitespace_pattern"})
"""Fields whose strings are regular expressions."""
_GRAMMARS: Final = frozenset({"grammar", "guided_grammar"})
"""Fields whose strings are grammars: EBNF, or Lark's."""
_ALL_PATTERNS: Final = 5
"""Times `repeats` that all patterns of a request may have together."""
_PARTS: Final = re.compile(
    r"\\[ux]\{[0-9A-Fa-f]{1,6}\}|\\.|\[\^?(?:\\.|[^\]\\])*\]"
    r"|\{\s*(?P<low>\d*)\s*,?\s*(?P<high>\d*)\s*\}|[?*+]+|\(\?[:=!]|.",
    re.DOTALL,
)
_RANGE: Final = re.compile(r"\{\s*(\d*)\s*,?\s*(\d*)\s*\}")
_OPEN: Final = 8
"""What a `?`, `*` or `+` counts: 500 in a row take xgrammar 10 s, a repetition of 1,000 0.1 s."""
# Larger numbers say no more, and make arithmetic slow.
_HUGE: Final = 10**9
_DIGITS: Final = 9
_NESTING: Final = (dict, list, tuple)


@dataclass(frozen=True)
class StructureBounds:
    """What one request may hold. Each has an option, `option.max_structure_` and its name."""

    size: int = 131_072
    """Bytes of a grammar, or of a schema as JSON."""
    choices: int = 2_000
    """Members of one list in it: of choices, of an enum, of alternatives."""
    depth: int = 64
    """Objects and lists within each other."""
    repeats: int = 1_024
    """Characters of a pattern that are repeated or optional, written out."""


DEFAULT_BOUNDS: Final = StructureBounds()


def check_structures(structures: Mapping[str, Any], bounds: StructureBounds) -> None:
    """Check a request's structured output, kind by kind, as vLLM calls them.

    Raises:
        RequestError: naming the kind, what is too large, the bound and its option.
    """
    for kind, value in structures.items():
        check_structure(f"structured_outputs.{kind}", value, bounds)


def check_structure(field: str, value: Any, bounds: StructureBounds) -> None:
    """Check a grammar, a schema, a list of choices, or an object with any of them inside.

    Raises:
        RequestError: as `check_structures`.
    """
    _Check(field, bounds).check(value)


def written_out(pattern: str) -> int:
    """Return how many characters of a pattern are repeated or optional, written out.

    `a{1,20}` has 20, `(a{1,20}b){5}` has 105; each of `?`, `*` and `+` counts as 8. A text that is
    no pattern has some number too.
    """
    # For each open group: characters once, characters repeated; then those of its last part.
    groups = [[0, 0]]
    last = [0, 0]
    for match in _PARTS.finditer(pattern):
        part = match[0]
        if part.startswith("("):
            groups.append([0, 0])
            last = [0, 0]
        elif part == ")" and len(groups) > 1:
            last = groups.pop()
            _add(groups[-1], last)
        elif match["low"] is not None:
            _add(groups[-1], last, -1)
            last = [0, min(_HUGE, sum(last) * _times(match["low"], match["high"]))]
            _add(groups[-1], last)
        elif part[0] in "?*+":
            groups[-1][1] += _OPEN
            last = [last[0], last[1] + _OPEN]
        else:
            last = [1, 0]
            _add(groups[-1], last)
    return sum(repeated for _, repeated in groups)


def repeated(grammar: str) -> int:
    """Return the same of a grammar, as far as its text tells: a rule may repeat another.

    Those in quotes and comments count too: what is quoted differs between kinds of grammars.
    """
    ends = sum(map(grammar.count, "?*+"))
    largest = max((_times(*match.groups()) for match in _RANGE.finditer(grammar)), default=0)
    return ends * _OPEN + largest


def _add(counts: list[int], more: list[int], sign: int = 1) -> None:
    counts[0] += sign * more[0]
    counts[1] += sign * more[1]


def _times(low: str, high: str) -> int:
    return max(_HUGE if len(text) > _DIGITS else int(text or 0) for text in (low, high))


class _Check:
    """Looks at a value once, and stops where a bound is passed."""

    def __init__(self, field: str, bounds: StructureBounds) -> None:
        self._field, self._bounds = field, bounds
        self._size = self._repeats = 0
        self._texts: list[str] = []
        """JSON in strings, looked at by itself."""

    def check(self, value: Any) -> None:
        """Raise RequestError where a bound is passed."""
        self._look(self._field.rpartition(".")[2], value)
        for text in self._texts:
            try:
                read = json.loads(text)
            except RecursionError:
                raise self._error("is nested too deeply", "depth", "levels") from None
            except ValueError:
                # The engine says what it is instead.
                continue
            self._size = 0
            self._look("", read)

    def _look(self, name: str, value: Any) -> None:
        """Go through a value level by level: it may be nested deeper than Python's stack."""
        level, depth = [(name, value)], 0
        while level:
            if depth == self._bounds.depth and any(isinstance(each, _NESTING) for _, each in level):
                raise self._error("is nested too deeply", "depth", "levels")
            level = [child for key, each in level for child in self._children(key, each)]
            depth += 1

    def _children(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        match value:
            case str():
                self._grow(_bytes(value))
                self._look_at_text(name, value)
            case dict():
                self._grow(2)
                for key, item in value.items():
                    self._grow(_bytes(str(key)))
                    if name == "patternProperties":
                        self._look_at_pattern(str(key))
                    yield str(key), item
            case list() | tuple():
                self._grow(2)
                if len(value) > self._bounds.choices:
                    problem = f"has {len(value)} members in {printable(name, 40) or 'a list'}"
                    raise self._error(problem, "choices", "members")
                yield from ((name, item) for item in value)
            case _:
                self._grow(len(repr(value)) + 1)

    def _look_at_text(self, name: str, text: str) -> None:
        if name in _JSON:
            self._texts.append(text)
        elif name in _PATTERNS:
            self._look_at_pattern(text)
        elif name in _GRAMMARS:
            self._repeat(repeated(text))

    def _look_at_pattern(self, pattern: str) -> None:
        self._repeat(written_out(pattern))

    def _repeat(self, count: int) -> None:
        self._repeats += count
        if count > self._bounds.repeats:
            raise self._error(f"repeats {count} characters", "repeats", "characters")
        if self._repeats > self._bounds.repeats * _ALL_PATTERNS:
            problem = f"repeats {self._repeats} characters in all patterns"
            raise self._error(problem, "repeats", f"times {_ALL_PATTERNS}")

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._bounds.size:
            raise self._error("is too large", "size", "bytes")

    def _error(self, problem: str, bound: str, unit: str) -> RequestError:
        accepted = f"at most {getattr(self._bounds, bound)} {unit} (option.max_structure_{bound})"
        return RequestError(problem, field=self._field, accepted=accepted)


def _bytes(text: str) -> int:
    """Return the bytes of a text in JSON, with its quotes and what stands behind it."""
    return 3 + (len(text) if text.isascii() else len(text.encode("utf-8", "replace")))
