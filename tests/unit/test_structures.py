"""What structured outputs are measured by."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.structures import (
    DEFAULT_BOUNDS,
    StructureBounds,
    check_structure,
    check_structures,
    repeated,
    written_out,
)

SMALL = StructureBounds(size=100, choices=3, depth=4, repeats=50)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("", 0),
        ("abc", 0),
        ("a{1,20}", 20),
        ("a{20}", 20),
        ("a{20,}", 20),
        ("a{,20}", 20),
        ("a{ 1, 20 }b", 20),
        ("a?b+c*", 24),
        ("a??", 8),
        ("(?:ab){3}", 6),
        ("(a{1,20}b){5}", 105),
        ("((a{2}b){3}c){4}", 40),
        ("(a?){4}", 36),
        ("[a-z?*]{4}", 4),
        (r"[^\]]{4}", 4),
        (r"\{9\}\d{4}", 4),
        (r"\u{2000}", 0),
        ("[^]a?]", 8),
        ("a{99999999999999999999}", 1_000_000_000),
        ("){3}(", 3),
    ],
)
def test_a_pattern_is_written_out(pattern: str, count: int) -> None:
    assert written_out(pattern) == count


@pytest.mark.parametrize(
    ("grammar", "count"),
    [('root ::= "a"', 0), ('root ::= "a"? b* [c]+', 24), ("a{3} b{1,7}? # why?", 23)],
)
def test_a_grammar_is_counted(grammar: str, count: int) -> None:
    assert repeated(grammar) == count


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("grammar", "x" * 98, "100 bytes (option.max_structure_size)"),
        ("json", {"x" * 50: "y" * 50}, "100 bytes (option.max_structure_size)"),
        ("json", {"a": "ü" * 48}, "100 bytes (option.max_structure_size)"),
        ("json", {"a": 10**99}, "100 bytes (option.max_structure_size)"),
        ("choice", ["a", "b", "c", "d"], "3 members (option.max_structure_choices)"),
        ("choice", ("a", "b", "c", "d"), "3 members (option.max_structure_choices)"),
        ("json", '{"enum": [1, 2, 3, 4]}', "3 members (option.max_structure_choices)"),
        ("json", [[[[[]]]]], "4 levels (option.max_structure_depth)"),
        ("json", "[[[[[]]]]]", "4 levels (option.max_structure_depth)"),
        ("regex", "a{51}", "50 characters (option.max_structure_repeats)"),
        ("grammar", "a ::= b{51}", "50 characters (option.max_structure_repeats)"),
    ],
)
def test_a_bound_is_named_with_its_option(name: str, value: Any, bound: str) -> None:
    with pytest.raises(RequestError) as refusal:
        check_structures({name: value}, SMALL)
    assert refusal.value.field == f"structured_outputs.{name}"
    assert str(refusal.value).endswith(f"accepted: at most {bound}")
    check_structures({name: value}, StructureBounds(size=999, choices=9, depth=9, repeats=99))


def test_all_patterns_together_have_a_bound() -> None:
    schema = {f"p{number}": {"pattern": "a{40}"} for number in range(7)}
    wide = replace(SMALL, size=999)
    check_structure("json", dict(list(schema.items())[:6]), wide)
    with pytest.raises(RequestError, match="repeats 280 characters in all patterns"):
        check_structure("json", schema, wide)


@pytest.mark.parametrize(
    "structures",
    [
        {"choice": ["a", "b", "c"]},
        {"json": [[[[]]]]},
        {"json": "not json {5000}"},
        {"json_object": True, "disable_any_whitespace": False},
        {"json": {"description": "a{1,5000} ???????"}},
        {},
    ],
)
def test_what_is_within_the_bounds_is_taken(structures: dict[str, Any]) -> None:
    check_structures(structures, SMALL)


def test_json_in_a_text_is_looked_at_once() -> None:
    text = json.dumps({"a": 1})
    for _ in range(12):
        text = json.dumps({"json": text})
    check_structures({"json": text}, DEFAULT_BOUNDS)
