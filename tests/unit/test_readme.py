"""The facts of README.md: its size, its commands, its links, what it says was verified."""

import re
import shlex

import interpreters
import pytest
import tomllib

from lmi_backend.cli.main import parser
from lmi_backend.supervisor.installation import OLDEST_FOR_FLEETS
from tests.support.run.places import ROOT

TEXT = (ROOT / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"^(?:\$ )?(lmi-backend [^#\n]+)", TEXT, re.MULTILINE)
LINKS = re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT)


def slug(heading: str) -> str:
    """As GitHub makes the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def test_it_is_short() -> None:
    assert len(TEXT.splitlines()) <= 150


@pytest.mark.parametrize("command", ["make serve", "make test"])
def test_the_two_commands_stand_alone(command: str) -> None:
    assert f"```\n{command}\n```\n" in TEXT
    assert f"\n{command.partition(' ')[2]}: " in (ROOT / "Makefile").read_text("utf-8")


def test_ci_runs_the_same_words() -> None:
    text = (ROOT / ".ci" / "run").read_text("utf-8")
    lines = re.findall(r"^(?:nice )?(make .*?)(?: & \w+=\$!)?$", text, re.MULTILINE)
    assert "make test" in lines
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {word for line in lines for word in line.split()[1:]} <= set(targets)
    assert not re.search(r"pytest|PYTEST|python -m|\|\|.*make", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_of_ours(command: str) -> None:
    assert parser().parse_args(shlex.split(command)[1:]).run


def test_each_link_leads_somewhere() -> None:
    assert [link for link in LINKS if not _leads_somewhere(link)] == []


def _leads_somewhere(link: str) -> bool:
    path, _, anchor = link.partition("#")
    if not anchor:
        return (ROOT / path).exists()
    headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text("utf-8"), re.MULTILINE)
    return anchor in map(slug, headings)


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', TEXT)
    assert len(pictures) == 4
    assert all((ROOT / path).is_file() for path in pictures)


def test_the_releases_are_those_that_are_installed_and_accepted() -> None:
    text = " ".join(TEXT.split())
    oldest, newest = (
        ".".join(map(str, each)) for each in (interpreters.OLDEST, interpreters.NEWEST)
    )
    assert f"Python {oldest} or {newest}" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()
    assert f"Python 3.{low} to 3.{int(high) - 1}" in text
    assert f"{OLDEST_FOR_FLEETS} or later" in text


def test_the_images_are_those_of_the_dockerfile() -> None:
    stages = re.findall(r"^FROM .+ AS (\w+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.M)
    assert set(re.findall(r"--target (\w+)", TEXT)) <= set(stages)
