"""The contents of the documentation, and the page of the options that most people use."""

import re
from pathlib import Path

import contents_page
import pytest

from lmi_backend.options.signature import recorded_signature
from lmi_backend.options.table import find_option

DOCS = contents_page.CONTENTS.parent


def test_a_page_that_does_not_is_named() -> None:
    with pytest.raises(SystemExit, match=r"docs/x\.md: its first line is not the question"):
        contents_page.question(DOCS / "x.md", "# X\n\nSomething.\n")


def test_a_page_that_is_in_no_part_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stray.md").touch()
    monkeypatch.setattr(contents_page, "CONTENTS", tmp_path / "README.md")
    with pytest.raises(SystemExit, match=r"docs/stray\.md"):
        contents_page.navigation()


def test_the_common_options_are_twenty_that_exist() -> None:
    text = (DOCS / "common-options.md").read_text("utf-8")
    names = re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE)
    assert len(set(names)) == len(names) == 20
    signature = recorded_signature("vllm")
    assert signature
    taken = signature.arguments.keys() | signature.server.keys()
    for name in names:
        assert find_option(name, "vllm") or name.removeprefix("option.") in taken, name
