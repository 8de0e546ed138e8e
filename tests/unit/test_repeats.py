"""What patterns and grammars are counted to repeat."""

import pytest

from lmi_backend.repeats import HUGE, Cost, cost_of_grammar, cost_of_pattern

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
