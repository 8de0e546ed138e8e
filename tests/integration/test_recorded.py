"""Answers that other servers' projects publish: each difference from them has a kind."""

import json
from pathlib import Path

import pytest

from lmi_backend.cli.main import main
from tests.support.explained import OF_RECORDED, read_kinds, unexplained
from tests.support.serving import Served

RECORDED = OF_RECORDED.parent / "recorded.jsonl"
# The echo engine has another text than their models.
TEXTS = ("--ignore", "greedy text*:*")


def test_each_difference_from_published_answers_is_a_known_one(
    ensemble_server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    assert all(each["source"] for each in records)
    state = tmp_path / "state"
    words = ["--url", f"http://{ensemble_server.front_end}", "--state", str(state), *TEXTS]
    main(["replay", str(RECORDED), *words, "--no-shrink", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["judged"], report["problems"]) == (len(records), [])
    kinds = read_kinds(OF_RECORDED)
    unknown, seen, _ = unexplained(state, records, kinds)
    assert unknown == []
    assert seen == {kind["kind"] for kind in kinds}
