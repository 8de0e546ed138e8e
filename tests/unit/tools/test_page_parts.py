"""Parts of pages that are made of JSON files, and what a page may name."""

import pytest
from page_parts import check_places, filled

PAGE = """# A page

<!-- made: more -->
stale
<!-- end -->

<!-- made: more -->

<!-- end -->
The end.
"""


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [("<!-- end -->", "without its end"), ("<!-- made: more", "nothing makes: other")],
)
def test_a_part_is_whole_and_has_a_maker(wrong: str, problem: str) -> None:
    made = filled(PAGE, {"more": lambda: ["made"]})
    assert made.count("made\n") == 2
    assert "stale" not in made
    assert filled(made, {"more": lambda: ["made"]}) == made
    with pytest.raises(SystemExit, match=problem):
        filled(PAGE.replace(wrong, "<!-- made: other", 1), {"more": lambda: ["made"]})


@pytest.mark.parametrize(
    "place",
    [
        "lmi_backend/none.py",
        "tests/unit/tools/test_none.py::test_a",
        "tests/unit/tools/test_page_parts.py::test_none",
    ],
)
def test_a_page_names_what_is_there(place: str) -> None:
    check_places("`tests/unit/tools/test_page_parts.py::test_a_page_names_what_is_there`")
    with pytest.raises(SystemExit, match=place):
        check_places(f"| `{place}` |")
