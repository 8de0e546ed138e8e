"""Each path and name that the pages for contributors mention is there."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import support
from tests.support.run.places import ROOT

PAGES = ("docs/development.md", "docs/architecture.md")
PARTS = [ROOT / name for name in ("lmi_backend", "tests", "tools", "deploy")]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"\.?[\w.-]+(?:/[\w.-]+)+/?|[\w.-]+(?:/|\.(?:py|md|json|csv|toml|txt|pbtxt))")
NAME = re.compile(r"[A-Za-z_]+(?:\.[A-Za-z_]+)*(?:\(\))?")
# Made by the commands of the page, or written by its reader.
ABSENT = {"serving.properties", "config.pbtxt", "1/model.py", "config.json"}


@functools.cache
def _paths() -> set[str]:
    return {f"/{path.relative_to(ROOT)}" for part in PARTS for path in part.rglob("*")}


@functools.cache
def _names() -> set[str]:
    files = (path for part in PARTS[:3] for path in part.rglob("*.py") if path != Path(__file__))
    return {name for path in files for name in re.findall(r"\w+", path.read_text("utf-8"))}


def _spoken(page: str) -> Iterator[str]:
    """Yield what a page has in code, without its blocks of code."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)
    yield from CODE.findall(text)


def _is_there(spoken: str) -> bool:
    if spoken.startswith("make "):
        return re.search(rf"^{spoken.split()[1]}:", MAKEFILE, re.MULTILINE) is not None
    if "NAME" in spoken or spoken in ABSENT or spoken.startswith(".venv"):
        return True
    if PATH.fullmatch(spoken):
        # A walk names files and folders by the ends of their paths.
        ending = f"/{spoken.rstrip('/')}"
        return (ROOT / spoken).exists() or any(path.endswith(ending) for path in _paths())
    if NAME.fullmatch(spoken):
        return all(part in _names() for part in spoken.removesuffix("()").split("."))
    return True


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    spoken = set(_spoken(page))
    assert len(spoken) > 10
    assert not sorted(each for each in spoken if not _is_there(each))


def test_each_folder_that_tests_share_is_in_the_index() -> None:
    folders = {path.parent.name for path in (ROOT / "tests" / "support").glob("*/[!_]*.py")}
    assert folders == set(re.findall(r"^- (\w+):", support.__doc__ or "", re.MULTILINE))


def test_each_change_is_a_line_of_twenty_words() -> None:
    changes = re.findall(r"^- (.+(?:\n  .+)*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert [each for each in changes if "\n" in each or len(each.split()) > 20] == []
