"""What docs/scaling.md says of levels that are carried, and of one that is not."""

import json
from typing import Any

import pytest
from scaling_page import DATA, _one_server, _workers


@pytest.fixture
def data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA.read_text("utf-8"))
    return found


def _verdict(data: dict[str, Any]) -> str:
    return "\n".join(_one_server(data["one_server"], cores=2))


def test_the_first_level_that_falls_behind_is_named(data: dict[str, Any]) -> None:
    rows = data["one_server"]["rows"]
    for row, share in zip(rows, (1.0, 0.99, 0.8, 0.4), strict=True):
        row |= {"came": share * row["asked"], "failure": ""}
    rows[2]["busiest"] = {"front end": 0.3, "worker front end": 0.9}
    verdict = _verdict(data)
    assert "**512 streams are carried** here: 10,138 tokens/s" in verdict
    assert "**1,024 streams are held, but not at their pace**: 80% of the tokens" in verdict
    assert "the busiest process is the worker (0.90)" in verdict


def test_a_level_whose_streams_fail_says_why(data: dict[str, Any]) -> None:
    rows = data["one_server"]["rows"]
    for row in rows:
        row |= {"came": row["asked"], "failure": ""}
    assert "None of these breaks it." in _verdict(data)
    rows[3] |= {"failure": "ConnectionError: closed", "came": 0.0}
    assert "**2,048 streams break it**: `ConnectionError: closed`" in _verdict(data)


def test_bounds_of_eight_workers_are_told_either_way(data: dict[str, Any]) -> None:
    default, unheld = (data["workers"]["by_flush"][flush] for flush in ("default", "none"))
    default |= {"busiest": {"stub": 0.81}, "late_ms": {"p50": 20, "p99": 51}}
    unheld |= {"busiest": {"stub": 0.2}, "late_ms": {"p50": 1, "p99": 12}}
    text = "\n".join(_workers(data["workers"]))
    assert "the stub, with 81% of a core (over 80%)" in text
    assert "51 ms (over 50 ms), and 12 ms (within 50 ms)" in text
