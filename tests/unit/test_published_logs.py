"""No plan refuses what a published log shows running, and none promises what did not start."""

import csv
import functools
import statistics
from dataclasses import dataclass
from pathlib import Path

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.options import load_options
from lmi_backend.plan.capacity import Capacity
from lmi_backend.plan.engine_plan import Explanation
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.strategy import Strategy
from lmi_backend.printable import GIB
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.sizing.step import Release
from tests.support.places import ROOT
from tests.support.published_logs import (
    DATA,
    Comparison,
    Log,
    compared,
    comparisons,
    facts_of,
    graph_differences,
    known_configs,
    logs,
    number,
)

H100 = 79.19
UNCERTAINTIES = ("it may not start", "by the estimate the model barely does not fit")


@dataclass(frozen=True)
class Start:
    """One start of vLLM: what was asked for, and whether it went well."""

    row: dict[str, str]
    facts: ModelFacts
    release: Release
    capability: int = 90

    @property
    def went_well(self) -> bool:
        space = number(self.row["available_kv_gib_per_gpu"])
        failed = "not start" in self.row["note"] or "refused by vLLM" in self.row["note"]
        return not failed and bool(number(self.row["kv_tokens"]) or space > 0)

    @property
    def name(self) -> str:
        row = self.row
        return f"{row['model']} on {row['gpu']}, {row['vllm']}, {row['util']}, {row['tp']}"


@functools.cache
def starts() -> list[Start]:
    """Return every row of a known model whose device and share are known."""
    found = [
        Start(each.row, each.facts, each.step.release, each.step.capability)
        for each in logs()
        if number(each.row["device_gib"]) and number(each.row["util"]) and is_known(each)
    ]
    configs = known_configs()
    for each in comparisons():
        if each.estimate is not None and not each.reason:
            facts = facts_of(configs[each.row["model"]])
            found.append(Start(each.row, facts, each.estimate.release))
    return found


def is_known(log: Log) -> bool:
    """Tell whether the file that stands for the model's has its weights."""
    logged = number(log.row["model_loading_gib_per_gpu"]) * GIB
    return not logged or abs(log.estimate.weights / logged - 1) < 0.05


def planned(start: Start, folder: Path) -> Explanation:
    """Plan as it was started."""
    row = start.row
    words = {
        "max_model_len": int(number(row["max_model_len"])) or None,
        "gpu_memory_utilization": number(row["util"]) or 0.9,
        "max_rolling_batch_prefill_tokens": int(number(row["max_num_batched_tokens"])) or None,
        "tensor_parallel_degree": row["tp"],
        "pipeline_parallel_degree": row.get("pp") or 1,
        "kv_cache_dtype": row["kv_cache_dtype"] or None,
    }
    lines = [f"option.{name}={value}\n" for name, value in words.items() if value]
    properties = "".join(["engine=Python\noption.model_id=org/m\n", *lines])
    (folder / "serving.properties").write_text(properties, encoding="utf-8")
    options = load_options(folder, {})
    devices = tuple(map(str, range(int(row["tp"]) * int(row.get("pp") or 1))))
    memory = int((number(row["device_gib"]) or H100) * GIB)
    hardware = Hardware(devices=devices, device_memory=memory, capability=start.capability)
    running = int(number(row["max_num_seqs"])) or 256
    capacity = Capacity(options, hardware, start.facts, {}, running, start.release)
    why = Explanation()
    Strategy(options, hardware, capacity, why).choose()
    return why


def test_every_file_of_logs_is_planned() -> None:
    """A row is left out only where its model, device or share is not published."""
    rows = 0
    for name in ("measured.csv", "measured_2026.csv"):
        with (DATA / name).open(encoding="utf-8", newline="") as file:
            rows += len(list(csv.DictReader(file)))
    assert len(starts()) >= 70
    assert rows - len(starts()) < 45


def lines_of(start: Start, folder: Path) -> list[str] | None:
    """Return the words of its plan; None where it is refused."""
    try:
        made = planned(start, folder)
    except PlanError:
        return None
    return [*made.notes, *made.reasons]


def test_what_ran_is_planned_and_what_did_not_start_is_not_promised(tmp_path: Path) -> None:
    for start in starts():
        lines = lines_of(start, tmp_path)
        if start.went_well:
            assert lines is not None, start.name
        else:
            is_doubted = lines is None or any(word in " ".join(lines) for word in UNCERTAINTIES)
            assert is_doubted, start.name


def test_some_starts_failed() -> None:
    assert sum(not start.went_well for start in starts()) >= 3


@functools.cache
def all_rows() -> list[Comparison]:
    return list(comparisons())


def estimated() -> list[Comparison]:
    return [each for each in all_rows() if each.estimate and not each.reason]


def label_of(each: Comparison) -> str:
    row = each.row
    return f"{row['model']}-{row['vllm']}-tp{row['tp']}-pp{row['pp']}-{row['kv_cache_dtype']}"


def test_half_of_the_predictions_are_within_a_hundredth() -> None:
    dense = [abs(each.error) for each in estimated() if each.row["kind"].startswith("dense")]
    assert len(dense) > 30
    assert statistics.median(dense) <= 1


def test_no_prediction_is_off_by_a_twentieth() -> None:
    assert {label_of(each): each.error for each in estimated() if not abs(each.error) <= 5} == {}


def test_the_peak_of_a_step_is_what_was_measured() -> None:
    # Of stages the logs show the first; the last decides.
    rows = [each for each in estimated() if each.row["pp"] in {"", "1"}]
    peaks = {
        label_of(each): (each.estimate.activations / 2**30, float(each.row["peak_activation_gib"]))
        for each in rows
        if each.estimate and each.row["peak_activation_gib"]
    }
    encoders = {label_of(each): 0.16 if "vl" in each.row["kind"] else 0.05 for each in rows}
    assert len(peaks) > 20
    assert {
        label: (found, measured)
        for label, (found, measured) in peaks.items()
        if found != pytest.approx(measured, abs=encoders[label])
    } == {}


def test_as_many_tokens_as_were_measured_are_in_as_many_gib() -> None:
    """Groups, blocks and what a token takes: of windows and states too."""
    assert {
        label_of(each): (each.tokens, each.row["kv_tokens"])
        for each in all_rows()
        if each.tokens
        and each.tokens != pytest.approx(int(each.row["kv_tokens"]), abs=each.token_step)
    } == {}


def test_graphs_are_about_what_vllm_expects_of_them() -> None:
    differences = graph_differences(all_rows())
    assert len(differences) > 30
    assert statistics.median(differences) < 0.15


def test_layouts_of_every_kind_are_among_them() -> None:
    kinds = {kind for each in all_rows() if each.tokens for kind in each.row["kind"].split()}
    assert {"dense", "moe", "mla", "swa", "hybrid"} <= kinds


def test_each_log_has_an_address_and_each_that_is_not_compared_a_reason() -> None:
    assert all(each.row["url"].startswith("https://") for each in all_rows())
    assert all(each.reason or each.estimate for each in all_rows())
    assert len(all_rows()) == len(estimated()) + sum(bool(each.reason) for each in all_rows())


def test_the_page_has_the_errors_of_today() -> None:
    """docs/planner.md says how far predictions are from logs."""
    graphs = graph_differences(all_rows())
    shares = {
        "KV cache, vLLM 0.11 to 0.20": [abs(each.error) for each in estimated()],
        "KV cache, logs of 2026": [abs(log.error) for log in compared(logs())],
    }
    rows = {
        f"| {what} | {len(errors)} | {statistics.median(errors):.2g} % | {max(errors):.1f} % |"
        for what, errors in shares.items()
    } | {
        f"| CUDA graphs, vLLM 0.19 | {len(graphs)} |"
        f" {statistics.median(graphs):.2f} GiB | {max(graphs):.2f} GiB |"
    }
    text = (ROOT / "docs" / "planner.md").read_text(encoding="utf-8")
    assert rows - set(text.splitlines()) == set()
