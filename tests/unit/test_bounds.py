"""docs/reliability.md says what bounds each buffer, in the figures of the code."""

from tests.support.bounds import table
from tests.support.places import ROOT


def test_the_page_has_the_bounds_of_the_code() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert table() in page
