"""Parts of pages that suites measure."""

from pathlib import Path

from tests.support.measured import FleetReport, Report, replace_part, rows
from tests.support.places import ROOT


def test_its_row_is_replaced_and_the_rest_of_the_page_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (ROOT / "tests" / "chaos" / "results.md").read_text("utf-8")
    page.write_text(text, "utf-8")
    for number in ("5", "100"):
        replace_part(page, "faults", rows("fault", "seen", of=[("killed", number)]))
    assert "| fault | seen |\n| --- | --- |\n| killed | 100 |\n" in page.read_text("utf-8")
    assert "| killed | 5 |" not in page.read_text("utf-8")
    report = Report()
    report.note_front("another", "seen")
    report.write(page)
    made = page.read_text("utf-8")
    assert "| fault | what was seen |\n| --- | --- |\n| another | seen |\n" in made
    for mark in ("<!-- measured: ", "<!-- end -->", "\n## "):
        assert made.count(mark) == text.count(mark)


def test_what_routers_did_has_its_parts_in_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (ROOT / "docs" / "fleet.md").read_text("utf-8")
    page.write_text(text, "utf-8")
    report = FleetReport()
    report.note("one", "killed: lost", "1 of 2")
    report.note("other", "full: lost", "0 of 2")
    report.notes.append("a note")
    report.prefixes.append(("one", "1%", "2%"))
    report.write(page)
    made = page.read_text("utf-8")
    for line in ("| one | 1 of 2 | not run |", "| other | not run | 0 of 2 |", "- a note"):
        assert f"\n{line}\n" in made
    assert "\n| one | 1% | 2% |\n" in made
    assert made.count("<!-- end -->") == text.count("<!-- end -->")
