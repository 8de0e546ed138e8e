"""What docs/mutations.md says, and that no name that is held is left out."""

import json
from typing import Any

import pytest
from mutations_page import RESULTS, WORDS, bare, mutations_page

from lmi_backend.engines.vllm.inside.table import NEEDS, PATHS

NAMES = {bare(text) for entry in (*PATHS, *NEEDS) for text in entry.names}


@pytest.fixture
def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return found


def test_each_name_of_the_table_is_in_the_record_and_no_other(record: dict[str, Any]) -> None:
    found = {name.partition(": ")[0] for name in (*record["found"], *record["not_run"])}
    classes = {name.partition(".")[0] for name in NAMES}
    assert found >= NAMES
    assert found <= NAMES | classes


def test_each_outcome_is_one_of_those_that_are_explained(record: dict[str, Any]) -> None:
    assert {word for word, _ in record["found"].values()} <= set(WORDS)


def test_each_name_and_what_was_not_run_is_on_the_page(record: dict[str, Any]) -> None:
    page = "\n".join(mutations_page())
    assert [name for name in NAMES if f"| `{name}` |" not in page] == []
    assert [name for name in record["not_run"] if name not in page] == []
