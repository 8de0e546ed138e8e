"""Differences between the answers of two servers, and the kinds that explain them."""

import fnmatch
import json
from pathlib import Path
from typing import Any

from lmi_backend.migrate.judge import Judge
from lmi_backend.migrate.kinds import Difference
from lmi_backend.migrate.reading import read_corpus
from lmi_backend.migrate.running import Outcome, Replay, Target
from tests.support.run.places import TESTS

OF_VLLM = TESTS / "data" / "vllm_server" / "kinds.json"
OF_POOLING = TESTS / "data" / "vllm_pooling" / "kinds.json"
OF_RECORDED = TESTS / "data" / "recorded" / "kinds.json"


def read_kinds(path: Path) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return read


def explains(kind: dict[str, Any], record: dict[str, Any], difference: Difference) -> bool:
    paths = kind.get("paths", ["*"])
    if not any(fnmatch.fnmatchcase(record["path"], each) for each in paths):
        return False
    if "members" in kind and not _has_one(kind["members"], record["body"]):
        return False
    name = ":".join(difference.key)
    patterns = (each.replace("[", "[[]") for each in kind["differences"])
    return any(fnmatch.fnmatchcase(name, each) for each in patterns)


def _has_one(members: dict[str, Any], text: Any) -> bool:
    """Return whether a body has a member of some, with one of its values where these are named."""
    try:
        body = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return False
    given = {**body, **body.get("parameters", {})} if isinstance(body, dict) else {}
    return any(
        name in given and (values is None or given[name] in values)
        for name, values in members.items()
    )


def replayed(
    corpus: Path, url: str, against: str | None = None, *, at_once: int = 1, ignored: Any = ()
) -> list[Outcome]:
    """Send each request of a corpus; return what became of it."""
    read = read_corpus([str(corpus)], {}, say=print)
    assert read.problems == []
    old = Target(against, timeout=120) if against else None
    replay = Replay(Target(url, timeout=120), Judge(ignored=ignored), old, at_once=at_once)
    outcomes = list(replay.run(read.exchanges))
    assert all(each.is_judged for each in outcomes)
    return outcomes


def unexplained(
    outcomes: list[Outcome], records: list[dict[str, Any]], kinds: list[dict[str, Any]]
) -> tuple[list[Any], set[str], int]:
    """Look for the kinds of what `replay` found; the records are the lines of its corpus.

    Returns:
        The differences without a kind, each with its request; the kinds that were seen; how many
        requests show no difference.
    """
    unknown, seen, same = [], set[str](), 0
    assert len(outcomes) == len(records)
    for outcome in outcomes:
        record = records[int(outcome.place.rpartition(":")[2]) - 1]
        same += not outcome.differences
        for each in outcome.differences:
            reasons = [kind["kind"] for kind in kinds if explains(kind, record, each)]
            seen.update(reasons)
            unknown += [] if reasons else [(each, record)]
    return unknown, seen, same
