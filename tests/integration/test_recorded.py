"""Answers that other servers' projects publish: each difference from them has a kind."""

import json

from tests.support.answers.explained import OF_RECORDED, read_kinds, replayed, unexplained
from tests.support.servers.serving import Served

RECORDED = OF_RECORDED.parent / "recorded.jsonl"
# The echo engine has another text than their models.
TEXTS = "greedy text*:*"


def test_each_difference_from_published_answers_is_a_known_one(ensemble_server: Served) -> None:
    records = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    assert all(each["source"] for each in records)
    outcomes = replayed(RECORDED, f"http://{ensemble_server.front_end}", ignored=[TEXTS])
    kinds = read_kinds(OF_RECORDED)
    unknown, seen, _ = unexplained(outcomes, records, kinds)
    assert unknown == []
    assert seen == {kind["kind"] for kind in kinds}
