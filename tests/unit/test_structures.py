"""Bounds of structured outputs, and what their patterns repeat."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.structures import (
    DEFAULT_BOUNDS,
    HUGE,
    Cost,
    StructureBounds,
    check_structure,
    check_structures,
    cost_of_grammar,
    cost_of_pattern,
)

MOST = Cost(HUGE, HUGE)


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
        ("a{0}", 1),
        ("(a?b?){0}", 18),
        (r"(\d\d\u{1F600}){2}", 6),
        ("a{1,5,3}", 5),
        ("[a{9}", 9),
        (r"[a\]{9}", 9),
        ("a{#\n9}", 0),
        ("(?x)a{1,#\n9}", 1_000_000_008),
        ("(?ix:a{ # c\n 9})", 1_000_000_008),
        ("a{", 0),
        ("a\\", 0),
    ],
)
def test_a_pattern_is_written_out(pattern: str, count: int) -> None:
    assert cost_of_pattern(pattern, MOST).repeats == count


@pytest.mark.parametrize(
    ("grammar", "count"),
    [
        ('root ::= "a"', 0),
        ('root ::= "a"? b* [c]+', 24),
        ("a{3} b{1,7}? # why?", 23),
        ('a ::= "b"{1,#}\n 9}', 9),
        ('a ::= "b"{1, # c\n# d\n 9 # e\n}', 9),
        ('a ::= "{#" "b"{1,#\n9}', 9),
        ('start: "b"~9', 9),
        ('start: "b" ~ 1..9', 9),
        ('start: "b"~1..//\n9', 9),
        ("start: /b{1,9}/", 9),
        ('a ::= "{1" "b"', 0),
        ('a ::= "{2', 0),
        ("a{99999999999999999999}", 1_000_000_000),
    ],
)
def test_a_grammar_is_counted(grammar: str, count: int) -> None:
    assert cost_of_grammar(grammar, MOST).repeats == count


def test_reading_ends_where_a_bound_is_passed() -> None:
    assert cost_of_pattern("a?" * 500, Cost(20, 99)) == (24, 6)
    assert cost_of_pattern("()" * 500, Cost(20, 99)) == (0, 100)
    assert cost_of_grammar("a{2}" * 500, Cost(20, 99)) == (2, 100)
    assert cost_of_grammar("a{2}a{30}" * 500, Cost(20, 99)) == (30, 2)


SMALL = StructureBounds(size=100, choices=3, depth=4, repeats=50)


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


@pytest.mark.parametrize("text", ["[" * 131_072, '{"a":' * 26_000, "9" * 131_000, "-" * 131_000])
def test_a_text_that_is_no_schema_is_refused_or_left_to_the_engine(text: str) -> None:
    # Refused or not, it comes back.
    with contextlib.suppress(RequestError):
        check_structures({"json": text}, DEFAULT_BOUNDS)


def test_the_pieces_of_all_patterns_have_a_bound() -> None:
    with pytest.raises(RequestError, match=r"16385 or more groups.*times 16 \(option"):
        check_structures({"regex": "()" * 20_000}, DEFAULT_BOUNDS)
    schema = [{"pattern": "()" * 4_000}] * 3
    check_structures({"json": schema[:2]}, DEFAULT_BOUNDS)
    with pytest.raises(RequestError, match="groups, classes and repetitions in its patterns"):
        check_structures({"json": schema}, DEFAULT_BOUNDS)


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        # It is not read.
        ({"regex": "é" * 200_000}, "is too large"),
        ({"json": {"$ref": "#" + "/a" * 512}}, "a reference of 1025 characters.*64 times 16"),
        ({"json": [{"$ref": f"#/{n}"} for n in range(513)]}, "more than 512 places.*64 times 8"),
        ({"json": json.dumps([{"$dynamicRef": f"#{n}"} for n in range(513)])}, "512 places"),
        ({"grammar": "a ::= b\n" * 2001}, "has 2001 rules or lines.*at most 2000"),
        ({"grammar": "a ::= b " * 2001}, "has 2001 rules or lines.*at most 2000"),
        ({"grammar": "\n" * 2001}, "has 2001 rules or lines.*max_structure_choices"),
        ({"grammar": "a{" * 8193}, "has 8193 brackets.*1024 times 8"),
    ],
)
def test_what_compilers_follow_step_by_step_has_a_bound(
    structure: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        check_structures(structure, DEFAULT_BOUNDS)


def test_references_to_the_same_places_are_few() -> None:
    schema = [{"$ref": f"#/$defs/{number % 500}"} for number in range(2000)]
    check_structures({"json": schema}, DEFAULT_BOUNDS)
    check_structures({"json": {"properties": {"$ref": {"type": "string"}}}}, DEFAULT_BOUNDS)
