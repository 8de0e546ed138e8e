"""The table of clients has every program that tests/clients runs."""

import clients_page
import pytest
from licenses import pins

from tests.support.places import TESTS

ROWS = clients_page.rows()


def test_every_program_that_is_run_has_a_row() -> None:
    files = {path.name for path in (TESTS / "clients").glob("test_*.py")}
    named = {row["test"].partition("::")[0].removeprefix("clients/") for row in ROWS}
    # The examples of the same programs, which the page itself has, and what these make of errors.
    assert files - named == {"test_page.py", "test_failures.py"}


def test_the_version_of_a_program_that_is_run_is_that_of_the_lock() -> None:
    locked = {pin.partition("==")[0] for pin in pins("clients.txt")}
    for row in ROWS:
        if row["test"].startswith("clients/"):
            assert row["version"] in {*locked, "perf_analyzer", ""}, row["client"]


def test_a_row_whose_test_is_not_there_stops_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ROWS[0] | {"test": "clients/test_openai.py::test_nothing"}
    monkeypatch.setattr(clients_page, "rows", lambda: [wrong])
    with pytest.raises(SystemExit, match=r"^clients.json: .* there is no test"):
        clients_page.clients_page()
