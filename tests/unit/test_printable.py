"""Texts of clients as people read them."""

import pytest

from lmi_backend.printable import cut, listed, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a b/ü-7", "a b/ü-7"),
        ("a\nb\tc\0", "a\\nb\\tc\\x00"),
        ("\u202eab\u2028", "\\u202eab\\u2028"),
        ("\ud800", "\\ud800"),
        ("x" * 10, "x" * 10),
        ("x" * 11, "xxxxxxxxxx… (11 characters)"),
        ("\n" * 11, "\\n\\n\\n\\n\\n… (11 characters)"),
    ],
)
def test_a_text_is_cut_and_escaped(text: str, shown: str) -> None:
    assert printable(text, 30 if "x" not in text and len(text) < 11 else 10) == shown


def test_to_cut_again_changes_nothing() -> None:
    once = cut("x" * 50, 10)
    assert once == "x" * 9 + "…"
    assert cut(once, 10) == once
    assert cut("x" * 10, 10) == "x" * 10


def test_of_many_names_the_first_are_listed() -> None:
    assert listed([]) == "none"
    assert listed([], "nothing") == "nothing"
    assert listed(["a", "b\n"]) == "a, b\\n"
    assert listed(map(str, range(25))).endswith(", 18, 19 and 5 more")
