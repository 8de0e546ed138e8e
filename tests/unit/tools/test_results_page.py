"""What README.md and benchmarks/README.md have of the newest results."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import results_page
from results_page import beside, newest, samples

OURS, THEIRS = "lmi-backend, chat, each token", "vLLM's server"
RUST = "vLLM's Rust front end"
EIGHT = ("lmi-backend, chat, 8 tokens", "vLLM's server, 8 tokens")


def first(sample: dict[str, Any]) -> float:
    return float(sample["first_ms"]["p50"])


def gap(sample: dict[str, Any]) -> float:
    return float(sample["gap_ms"]["p99"])


def medians(
    kind: str, at_once: int, targets: tuple[str, ...], what: Callable[[dict[str, Any]], float]
) -> list[float]:
    return [statistics.median(map(what, samples(kind, target, at_once))) for target in targets]


@pytest.mark.parametrize("targets", [(OURS, THEIRS), EIGHT])
def test_many_chats_cost_less(targets: tuple[str, str]) -> None:
    ours, theirs = medians("chats", 256, targets, beside)
    assert ours < theirs


@pytest.mark.parametrize("at_once", [1, 64, 256])
def test_events_come_more_evenly_than_from_both_servers_and_earlier_than_from_one(
    at_once: int,
) -> None:
    ours, *theirs = medians("chats", at_once, (OURS, THEIRS, RUST), gap)
    assert ours < min(theirs)
    ours, python = medians("chats", at_once, (OURS, THEIRS), first)
    assert ours < python


def test_a_format_with_log_probabilities_costs_a_third_more() -> None:
    ours, lmi = medians("chats", 256, (OURS, "lmi-backend, LMI, each token"), beside)
    assert 1.2 < lmi / ours < 1.45


def test_tokens_that_share_events_cost_half() -> None:
    ours, theirs = medians("chats", 256, EIGHT, beside)
    assert 0.4 < ours / theirs < 0.6


def test_the_rust_front_end_costs_less() -> None:
    for ours, rust in ((OURS, RUST), (EIGHT[0], f"{RUST}, 8 tokens")):
        mine, theirs = medians("chats", 256, (ours, rust), beside)
        assert theirs < mine


def test_embeddings_cost_more() -> None:
    targets = "lmi-backend, embeddings", "vLLM's server, embeddings"
    ours, theirs = medians("embeddings", 64, targets, beside)
    assert 1.3 < ours / theirs < 1.5


def whole(sample: dict[str, Any]) -> float:
    return float(sum(sample["cpu_us_per_token"].values()))


@pytest.mark.parametrize(("at_once", "most"), [(1, 0.3), (64, 0.4), (256, 0.6)])
def test_a_server_with_its_engine_costs_less_than_both(at_once: int, most: float) -> None:
    ours, *theirs = medians("chats", at_once, (OURS, THEIRS, RUST), whole)
    assert ours / min(theirs) < most


def test_dynamo_costs_more_than_twice_as_much() -> None:
    ours, dynamo = medians("dynamo", 256, (OURS, "Dynamo"), beside)
    assert 2 * ours < dynamo


def test_one_stream_alone_costs_as_much() -> None:
    ours, theirs = medians("alone", 1, (OURS, THEIRS), beside)
    assert 0.9 < ours / theirs < 1.45


def rate(sample: dict[str, Any]) -> float:
    return float(sample["requests_per_second"])


def test_answers_of_one_token_are_twice_as_many_as_of_one_server() -> None:
    ours, python, rust = medians("one-token", 64, (OURS, THEIRS, RUST), rate)
    assert 1.8 < ours / python < 2.6
    assert 0.7 < ours / rust < 1


@pytest.mark.parametrize("at_once", [64, 256])
def test_chats_with_tools_cost_half(at_once: int) -> None:
    targets = "lmi-backend, chat with tools, each token", "vLLM's server, chat with tools"
    ours, theirs = medians("tools", at_once, targets, beside)
    assert 0.4 < ours / theirs < 0.6


def test_the_newest_run_of_each_kind_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_page, "RESULTS", tmp_path)
    for name in ("2026-01-01-a", "2026-01-02-a", "2026-01-01-b"):
        (tmp_path / f"{name}.json").touch()
    assert {kind: path.stem for kind, path in newest().items()} == {
        "a": "2026-01-02-a",
        "b": "2026-01-01-b",
    }


def test_each_regime_has_a_table_of_its_newest_run() -> None:
    lines = list(results_page.regimes())
    for regime in results_page.REGIMES:
        at = lines.index(f"### {regime.title}\n")
        assert newest()[regime.kind].stem in lines[at + 1]
        rows = [line for line in lines[at + 4 :] if line]
        assert rows[0].startswith("| ")
        read = json.loads(newest()[regime.kind].read_text(encoding="utf-8"))["samples"]
        shown = {each["target"] for each in read if regime.shows(each)}
        assert shown
        assert shown >= set(regime.among)
        table = "\n".join(rows[: rows.index("") if "" in rows else len(rows)])
        assert all(target in table for target in shown)


def test_what_costs_least_comes_first() -> None:
    read = [
        {
            "target": name, "concurrency": 1, "tokens_per_second": 1.0, "first_ms": {"p50": 1.0},
            "gap_ms": {"p99": 1.0}, "responses_per_request": 2.0,
            "cpu_us_per_token": {"worker front end": cpu, "stub": 0.2, "engine": 99.0},
        }
        for name, cpu in (("vLLM's server", 9.0), ("lmi-backend, chat", 3.0))
    ]  # fmt: skip
    ours, theirs = results_page.rows_of(read)
    assert ours[:4] == ["**lmi-backend, chat**", "1", "3.2", "worker 3"]
    assert theirs[0] == "vLLM's server"
