"""How much a client may require of the compiler of structured outputs.

A grammar, a schema or a list of choices is read on the loop that hands out all tokens. It is
compiled on the cores that make them, before its own first token. What it costs depends little on
its length: 50 bytes of a pattern keep vLLM 0.32's loop busy for more than 25 s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lmi_backend.errors import RequestError
from lmi_backend.printable import printable
from lmi_backend.repeats import Cost, cost_of_grammar, cost_of_pattern

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
    """Check a grammar, a schema, a list of choices, or an object with any of them inside.

    Raises:
        RequestError: as `check_structures`.
    """
    _Check(field, bounds).check(value)


def check_depth(field: str, value: Any, bounds: StructureBounds) -> None:
    """Check only how deep a value is nested: of one that is written out and not compiled.

    Raises:
        RequestError: as `check_structures`.
    """
    level = [value]
    for _ in range(bounds.depth):
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [child for each in inner for child in each if isinstance(child, _NESTING)]
    if level:
        accepted = f"at most {bounds.depth} levels (option.max_structure_depth)"
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
        """Return what the next text may hold."""
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
