"""The table of clients has every program that tests/clients runs."""

import clients_page

from tests.support.run.places import TESTS

ROWS = clients_page.rows()


def test_every_program_that_is_run_has_a_row() -> None:
    files = {path.name for path in (TESTS / "clients").glob("test_*.py")}
    named = {row["test"].partition("::")[0].removeprefix("clients/") for row in ROWS}
    # The examples of the same programs, which the page itself has, what these make of errors, and
    # what they may ask and are refused.
    others = {
        *("test_pages.py", "test_failures.py", "test_fields.py", "test_asked_for.py"),
        "test_refused.py",
        "test_compiled.py",
    }
    assert files - named == others


def test_the_version_of_a_program_that_is_run_is_that_of_the_lock() -> None:
    for row in ROWS:
        if row["test"].startswith("clients/"):
            assert row["version"] in {*clients_page.versions(), ""}, row["client"]
