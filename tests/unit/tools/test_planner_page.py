"""The planner beside what vLLM's published logs say; docs/planner.md is made from the same rows."""

import statistics
from pathlib import Path

import pytest
from planner_page import Comparison, comparisons, graph_differences

README = Path(__file__).resolve().parents[3] / "README.md"
ROWS = comparisons()
COMPARED = [each for each in ROWS if each.estimate and not each.reason]


def name(each: Comparison) -> str:
    row = each.row
    return f"{row['model']}-{row['vllm']}-tp{row['tp']}-pp{row['pp']}-{row['kv_cache_dtype']}"


def test_half_of_the_predictions_are_within_a_hundredth() -> None:
    dense = [abs(each.error) for each in COMPARED if each.row["kind"].startswith("dense")]
    assert len(dense) > 30
    assert statistics.median(dense) <= 1


def test_no_prediction_is_off_by_a_twentieth() -> None:
    assert {name(each): each.error for each in COMPARED if not abs(each.error) <= 5} == {}


def test_the_peak_of_a_step_is_what_was_measured() -> None:
    # Of stages the logs show the first; the last decides.
    rows = [each for each in COMPARED if each.row["pp"] in {"", "1"}]
    peaks = {
        name(each): (each.estimate.activations / 2**30, float(each.row["peak_activation_gib"]))
        for each in rows
        if each.estimate and each.row["peak_activation_gib"]
    }
    encoders = {name(each): 0.16 if "vl" in each.row["kind"] else 0.05 for each in rows}
    assert len(peaks) > 20
    assert {
        label: (found, measured)
        for label, (found, measured) in peaks.items()
        if found != pytest.approx(measured, abs=encoders[label])
    } == {}


def test_as_many_tokens_as_were_measured_are_in_as_many_gib() -> None:
    """Groups, blocks and what a token takes: of windows and states too."""
    assert {
        name(each): (each.tokens, each.row["kv_tokens"])
        for each in ROWS
        if each.tokens
        and each.tokens != pytest.approx(int(each.row["kv_tokens"]), abs=each.token_step)
    } == {}


def test_graphs_are_about_what_vllm_expects_of_them() -> None:
    differences = graph_differences(ROWS)
    assert len(differences) > 30
    assert statistics.median(differences) < 0.15


def test_layouts_of_every_kind_are_among_them() -> None:
    kinds = {kind for each in ROWS if each.tokens for kind in each.row["kind"].split()}
    assert {"dense", "moe", "mla", "swa", "hybrid"} <= kinds


def test_each_log_has_an_address_and_each_that_is_not_compared_a_reason() -> None:
    assert all(each.row["url"].startswith("https://") for each in ROWS)
    assert all(each.reason or each.estimate for each in ROWS)
    assert len(ROWS) == len(COMPARED) + sum(bool(each.reason) for each in ROWS)


def test_the_readme_leaves_the_figures_to_the_page() -> None:
    text = README.read_text(encoding="utf-8")
    assert "](docs/planner.md)" in text
    assert "median error" not in text
