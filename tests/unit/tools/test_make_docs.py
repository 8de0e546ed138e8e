"""The reference pages are those that the code makes."""

import make_docs
import pytest


def test_the_reference_pages_are_made_from_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert make_docs.main(["--check"]) == 0
    assert capsys.readouterr().out == ""
