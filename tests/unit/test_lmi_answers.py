"""What LMI's own handlers answered to 3,856 requests, and what is answered here.

Each difference has a kind, which docs/lmi-differences.md explains. `UPDATE_GOLDEN=1` writes how
many requests show it.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.support.lmi_answers import (
    FOLDER,
    Row,
    our_adapter,
    our_answer,
    our_sampling,
    rows,
)
from tests.support.lmi_differences import differences
from tests.support.lmi_kinds import KINDS, PARAMETERS, kind_of

TABLE = FOLDER / "kinds.json"


def explained(table: str, name: str, counts: Counter[str]) -> dict[str, int]:
    """Return how many requests the table says for each kind."""
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    if os.environ.get("UPDATE_GOLDEN"):
        for item in kept[table]:
            item["requests"] = counts[item[name]]
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        TABLE.write_text(f"{text}\n", encoding="utf-8")
    return {item[name]: item["requests"] for item in kept[table]}


def test_the_requests_are_many_and_of_all_kinds() -> None:
    assert len(rows()) == 3856
    groups = Counter((row.dialect, row.group) for row in rows())
    assert len(groups) == 24
    assert min(groups.values()) >= 20


def test_each_difference_from_lmi_is_explained() -> None:
    counts: Counter[str] = Counter()
    unknown: list[Any] = []
    same = 0
    for row in rows():
        found = differences(row.answer, our_answer(row))
        same += not found
        counts.update({kind_of(row, each) for each in found})
        unknown += [(row.known["body"], each) for each in found if not kind_of(row, each)]
    assert unknown == []
    assert dict(counts) == explained("kinds", "kind", counts)
    assert set(counts) == set(KINDS)
    assert same > 1050


def test_with_lines_the_streams_of_openais_bodies_are_lmis() -> None:
    streams = [
        replace(row, has_lines=True)
        for row in rows()
        if row.dialect == "async" and row.streams and "engine" in row.known
        if row.answer.status == 200
    ]
    assert len(streams) > 150
    for row in streams:
        found = {each.kind for each in differences(row.answer, our_answer(row))}
        # White space at the end, as kinds.json has it.
        assert found <= {"framing"}, row.known["body"]


def test_the_engine_gets_the_parameters_that_lmi_gives_it() -> None:
    counts: Counter[str] = Counter()
    unknown: list[Any] = []
    asked = 0
    for row in rows():
        if "sampling" not in row.known or "engine" in row.known:
            continue
        if (ours := our_sampling(row)) is None:
            continue
        asked += 1
        names = {name for name, *_ in other_parameters(row, ours)}
        counts.update(names & PARAMETERS.keys())
        unknown += [
            (row.known["body"], name, row.known["sampling"], ours)
            for name in names
            if name not in PARAMETERS or not PARAMETERS[name](row)
        ]
    assert asked > 2000
    assert unknown == []
    assert dict(counts) == explained("parameters", "parameter", counts)


def test_the_engine_gets_the_adapter_that_lmi_gives_it() -> None:
    asked = [row for row in rows() if row.group == "adapters" and our_answer(row).status == 200]
    answered = [row for row in asked if row.answer.status == 200]
    assert len(answered) > 100
    for row in answered:
        ours = our_adapter(row)
        if "adapters" in row.parameters:
            # LMI passes it over: kinds.json says so.
            assert ours in ("red", ""), row.known["body"]
        else:
            assert ours == row.known.get("adapter", ""), row.known["body"]
    assert {our_adapter(row) for row in answered} == {"", "red", "blue"}


def other_parameters(row: Row, ours: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parameters that differ: name, LMI's and ours."""
    # What is shown of tokens; and LMI's server makes a seed of its own for each request.
    ignored = {"logprobs", "prompt_logprobs", "skip_clone", "skip_reading_prefix_cache"}
    if row.parameters.get("seed") is None:
        ignored.add("seed")
    theirs = row.known["sampling"]
    ours = json.loads(json.dumps(ours))
    for name in {*theirs, *ours} - ignored:
        if theirs.get(name) != ours.get(name):
            yield name, theirs.get(name), ours.get(name)
