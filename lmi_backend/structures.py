"""How much a client may require of the compiler of structured outputs.

A grammar, a schema or a list of choices is read on the loop that hands out all tokens. It is
compiled on the cores that make them, before its own first token. What it costs depends little on
its length: 50 bytes of a pattern keep vLLM 0.32's loop busy for more than 25 s. So what patterns
and grammars repeat is counted. Clients write these texts, so each is read once from its beginning
to its end. No expression here can match the same characters in two ways, and what is read piece by
piece has a bound.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lmi_backend.errors import RequestError
from lmi_backend.printable import printable

HUGE: Final = 10**9
"""A count that no bound allows. Larger numbers say no more, and make arithmetic slow."""
_DIGITS: Final = 9
_OPEN: Final = 8
"""What a `?`, `*` or `+` counts: 500 in a row take xgrammar 10 s, a repetition of 1,000 0.1 s."""
_ESCAPE: Final = r"\\[ux]\{[0-9A-Fa-f]{1,6}\}|\\."
_CHARACTER: Final = re.compile(rf"{_ESCAPE}|.", re.DOTALL)
_CLASS: Final = r"(?P<characters>\[[^\]\\]*(?:\\.[^\]\\]*)*(?P<end>\])?)"
_OTHERS: Final = (
    r"(?P<open>\((?:\?[:=!])?)|(?P<close>\))|(?P<signs>[?*+]+)"
    r"|(?P<range>\{[\s\d,]*\})|(?P<comment>\{[\s\d,]*#)"
    # Characters that stand for themselves, and escapes.
    rf"|(?P<plain>(?:[^\\\[({{)?*+]|{_ESCAPE})+)|."
)
_PIECES: Final = re.compile(f"{_CLASS}|{_OTHERS}", re.DOTALL)
_WITHOUT_CLASSES: Final = re.compile(_OTHERS, re.DOTALL)
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
    # Characters once, and characters repeated: of each open group, and of the last piece.
    groups, last = [(0, 0)], (0, 0)
    pieces, is_verbose = _PIECES, _VERBOSE.search(pattern) is not None
    repeats = parts = at = 0
    while repeats <= most.repeats and parts <= most.parts and (match := pieces.match(pattern, at)):
        at, parts, kind, added = match.end(), parts + 1, match.lastgroup, (1, 0)
        match kind:
            case "open":
                groups.append((0, 0))
                last = added = (0, 0)
            case "close" if len(groups) > 1:
                last = added = groups.pop()
            case "signs" | "range":
                repeated = _repeated(match, last)
                added = repeated[0] - last[0], repeated[1] - last[1]
                repeats, last = repeats + added[1], repeated
            case "comment" if is_verbose:
                # It may hide a range.
                repeats += HUGE
            case _:
                last = (1, 0)
                if kind == "comment":
                    at = match.start() + 1
                elif kind == "characters" and match["end"] is None:
                    # Where one class has no end, none after it has.
                    at, pieces = match.start() + 1, _WITHOUT_CLASSES
                elif kind == "plain" and len(groups) > 1:
                    # Outside of groups only the last character can be repeated.
                    added = (len(_CHARACTER.findall(match[0])), 0)
        groups[-1] = groups[-1][0] + added[0], groups[-1][1] + added[1]
    return Cost(repeats, parts)


def _repeated(match: re.Match[str], last: tuple[int, int]) -> tuple[int, int]:
    """Return what the last piece counts that a sign or a range repeats."""
    if match.lastgroup == "signs":
        return last[0], last[1] + _OPEN
    return 0, min(HUGE, sum(last) * max(1, _largest(match[0])))


def cost_of_grammar(grammar: str, most: Cost) -> Cost:
    """Return the cost of a grammar by its text: a rule may repeat another.

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


def _largest(text: str) -> int:
    numbers = _NUMBER.findall(text)
    return max((HUGE if len(each) > _DIGITS else int(each) for each in numbers), default=0)


_JSON: Final = frozenset({"json", "guided_json", "json_schema", "structural_tag"})
"""Fields whose strings are JSON."""
_PATTERNS: Final = frozenset(
    {"pattern", "regex", "guided_regex", "whitespace_pattern", "guided_whitespace_pattern"}
)
"""Fields whose strings are regular expressions."""
_GRAMMARS: Final = frozenset({"grammar", "guided_grammar", "ebnf"})
"""Fields whose strings are grammars: EBNF, or Lark's."""
_LEADING: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
"""Fields whose strings refer to a part of the schema."""
_ALL_PATTERNS: Final = 5
"""Times `repeats` that all patterns of a request may have together."""
_PARTS: Final = 16
"""Times `repeats` that the pieces of all patterns may be, repeated or not: each is read in turn."""
_REFERENCES: Final = 8
"""Times `depth` that references may lead to places: each may lead to the next one, and llguidance,
which follows them, crashes at a thousand."""
_REFERENCE_SIZE: Final = 16
"""Times `depth` that one reference may have characters: vLLM 0.32 looks for paths in an error that
quotes it, in the square of its length."""
_BRACKETS: Final = 8
"""Times `repeats` that a grammar may have brackets; at 16,000 within each other llguidance
crashes."""
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
    """Check a grammar, a schema, a list of choices, or an object with any; raises the same."""
    _Check(field, bounds).check(value)


def check_depth(field: str, value: Any, bounds: StructureBounds) -> None:
    """Check only how deep a value is nested: of one that is written out and not compiled."""
    refuse_depth(field, value, bounds.depth, " (option.max_structure_depth)")


def refuse_depth(field: str, value: Any, most: int, option: str = "") -> None:
    """Raise RequestError for objects and lists within each other on more levels than `most`."""
    level = [value]
    for _ in range(most):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [child for each in inner for child in each if isinstance(child, _NESTING)]
        if not level:
            return
    accepted = f"at most {most} levels{option}"
    raise RequestError("is nested too deeply", field=field, accepted=accepted)


class _Check:
    """Looks at a value once, and stops where a bound is passed."""

    def __init__(self, field: str, bounds: StructureBounds) -> None:
        self._field, self._bounds = field, bounds
        self._size = self._repeats = self._parts = 0
        self._references: set[str] = set()
        self._texts: list[str] = []
        """JSON in strings, looked at by itself."""

    def check(self, value: Any) -> None:
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
                self._grow_by(value)
                self._look_at_text(name, value)
            case dict():
                self._grow(2)
                for key, item in value.items():
                    self._grow_by(str(key))
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
            self._look_at_grammar(text)
        elif name in _LEADING:
            self._look_at_reference(text)

    def _look_at_grammar(self, grammar: str) -> None:
        self._count(cost_of_grammar(grammar, self._most()))
        # One after the other, rules take llguidance the square of their number.
        rules = max(grammar.count("\n"), grammar.count("::="))
        if rules > self._bounds.choices:
            raise self._error(f"has {rules} rules or lines", "choices", "rules or lines")
        if (brackets := sum(map(grammar.count, "([{"))) > self._bounds.repeats * _BRACKETS:
            raise self._error(f"has {brackets} brackets", "repeats", f"times {_BRACKETS}")

    def _look_at_reference(self, reference: str) -> None:
        self._references.add(reference)
        if len(reference) > self._bounds.depth * _REFERENCE_SIZE:
            problem = f"has a reference of {len(reference)} characters"
            raise self._error(problem, "depth", f"times {_REFERENCE_SIZE}")
        if len(self._references) > self._bounds.depth * _REFERENCES:
            problem = f"refers to more than {len(self._references) - 1} places"
            raise self._error(problem, "depth", f"times {_REFERENCES}")

    def _look_at_pattern(self, pattern: str) -> None:
        self._count(cost_of_pattern(pattern, self._most()))

    def _most(self) -> Cost:
        return Cost(self._bounds.repeats, self._bounds.repeats * _PARTS - self._parts)

    def _count(self, cost: Cost) -> None:
        self._repeats += cost.repeats
        self._parts += cost.parts
        if cost.repeats > self._bounds.repeats:
            raise self._error(f"repeats {cost.repeats} characters", "repeats", "characters")
        if self._repeats > self._bounds.repeats * _ALL_PATTERNS:
            problem = f"repeats {self._repeats} characters in all patterns"
            raise self._error(problem, "repeats", f"times {_ALL_PATTERNS}")
        if self._parts > self._bounds.repeats * _PARTS:
            problem = f"has {self._parts} or more groups, classes and repetitions in its patterns"
            raise self._error(problem, "repeats", f"times {_PARTS}")

    def _grow_by(self, text: str) -> None:
        """Count the bytes of a text in JSON, with its quotes and what stands behind it."""
        self._grow(3 + len(text))
        # No text is written anew that is too long as it is.
        if not text.isascii():
            self._grow(len(text.encode("utf-8", "replace")) - len(text))

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._bounds.size:
            raise self._error("is too large", "size", "bytes")

    def _error(self, problem: str, bound: str, unit: str) -> RequestError:
        accepted = f"at most {getattr(self._bounds, bound)} {unit} (option.max_structure_{bound})"
        return RequestError(problem, field=self._field, accepted=accepted)
