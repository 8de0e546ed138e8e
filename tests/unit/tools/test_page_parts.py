"""Parts of pages that are made of JSON files, and what a page may name."""

import json
from pathlib import Path

import make_docs
import page_parts
import pytest
from page_parts import check_places, filled

ROWS = [{"a": 1234.5, "of": {"p50": 2}, "test": "x"}, {"a": None, "of": {}, "test": ""}]
PAGE = """# A page

<!-- made: table data.json {} -->
stale
<!-- end -->

<!-- made: more -->

<!-- end -->
The end.
"""


def _table(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(page_parts, "ROOT", tmp_path)
    data = {"rows": ROWS, "of_names": {"x": 1, "y": 2}, "of_rows": {"z": ROWS[0]}, "one": ROWS[0]}
    (tmp_path / "data.json").write_text(json.dumps(data), "utf-8")
    page = filled(PAGE.format(words), {"more": lambda: ["made"]})
    assert page == filled(page, {"more": lambda: ["made"]})
    begin, _, rest = page.partition("-->\n\n")
    made, _, rest = rest.partition("\n\n<!-- end -->\n")
    assert begin.startswith("# A page\n\n<!-- made: table data.json ")
    assert rest == "\n<!-- made: more -->\n\nmade\n\n<!-- end -->\nThe end.\n"
    return made.splitlines()[2:]


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("rows | a={a:,.0f} | half={of[p50]} of {a}", ["| 1,234 | 2 of 1234.5 |", "| - | - |"]),
        ("rows | test=`{test}`", ["| `x` |", "|  |"]),
        ("of_names | name={key} | value", ["| x | 1 |", "| y | 2 |"]),
        ("of_rows | key | test", ["| z | x |"]),
        ("one/ | test", ["| x |"]),
        ("one/of/ | p50", ["| 2 |"]),
    ],
)
def test_a_table_has_a_row_for_each_entry(
    words: str, rows: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _table(words, tmp_path, monkeypatch) == rows


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [("<!-- end -->", "without its end"), ("<!-- made: more", "nothing makes: other")],
)
def test_a_part_is_whole_and_has_a_maker(wrong: str, problem: str) -> None:
    page = PAGE.replace("table data.json {}", "more")
    assert "made" in filled(page, {"more": lambda: ["made"]})
    with pytest.raises(SystemExit, match=problem):
        filled(page.replace(wrong, "<!-- made: other", 1), {"more": lambda: ["made"]})


def test_each_part_that_is_made_is_in_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_docs, "MAKERS", {**make_docs.MAKERS, "lost": list})
    with pytest.raises(SystemExit, match="no page has these parts: lost"):
        make_docs.pages()


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
