"""A client is added by one module of clients and its name in the registry, and no more.

A copy of the package gets Ollama's `/api/chat`; then the front end serves it in its own words.
"""

import json
import os
import re
import subprocess
from typing import Any

import pytest

from tests.support.packages.added import Run, added
from tests.support.run.places import TESTS

FAKE = TESTS / "fakes" / "added_client"
CASE = json.loads((FAKE / "wire.json").read_text(encoding="utf-8"))
PAGE = "import requests_page; print(*requests_page.paths(), sep='\\n')"
STUB = """
from lmi_backend.clients.registry import is_at_once, path_at
print(is_at_once("/api/chat"), path_at("/api/chat").by_tensor)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python where the package has one client more."""
    root = tmp_path_factory.mktemp("added")
    run = added(root, FAKE / "package")
    registry = root / "lmi_backend" / "clients" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    registry.write_text(re.sub(r"\btgi,", "ollama, tgi,", text), encoding="utf-8")
    return run


@pytest.fixture(scope="module")
def answers(run: Run, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What its client gets, case by case, and what the model was sent for the first."""
    # The paths of sockets are short.
    done: subprocess.CompletedProcess[str] = run(
        FAKE / "serve.py", FAKE / "wire.json", os.environ.get("TMPDIR", "/tmp")
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_its_body_is_read_as_its_spec_says(answers: list[Any]) -> None:
    assert answers[-1] == CASE["relayed"]


def test_its_answer_is_in_its_form(answers: list[Any]) -> None:
    status, kind, text, has_end = answers[0]
    assert (status, kind, has_end) == (200, "application/x-ndjson", True)
    assert _lines(text) == CASE["lines"]


def test_an_error_inside_the_answer_is_in_its_form(answers: list[Any]) -> None:
    status, _, text, has_end = answers[1]
    assert (status, has_end) == (200, True)
    assert _lines(text) == [CASE["lines"][0], {"error": "it broke in the middle"}]


@pytest.mark.parametrize(
    ("place", "status", "words"),
    [(2, 400, "messages"), (3, 404, "does not exist"), (4, 405, "GET"), (5, 404, "not served")],
)
def test_an_error_before_it_is_in_its_form(
    answers: list[Any], place: int, status: int, words: str
) -> None:
    assert answers[place][0] == status
    answer = json.loads(answers[place][2])
    assert set(answer) == {"error"}
    assert words in answer["error"]


def test_the_stub_knows_its_path(run: Run) -> None:
    assert run("-c", STUB).stdout.split() == ["False", "False"]


def test_its_path_is_documented(run: Run) -> None:
    page = run("-c", PAGE).stdout
    assert "| Ollama | `POST /api/chat` | client | slot, resumes |" in page
