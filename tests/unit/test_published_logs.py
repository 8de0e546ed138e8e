"""No plan refuses what a published log shows running, and none promises what did not start."""

import csv
import functools
import statistics

import pytest

from lmi_backend.errors import PlanError
from lmi_backend.plan.capacity import Capacity
from lmi_backend.plan.engine_plan import Explanation
from lmi_backend.plan.hardware import Hardware
from lmi_backend.plan.strategy import Strategy
from lmi_backend.printable import GIB
from tests.support.records.plans import options_of
from tests.support.records.published_logs import (
    DATA,
    H100_GIB,
    Log,
    compared,
    logs,
    number,
    older_logs,
)
from tests.support.run.places import ROOT

UNCERTAINTIES = ("it may not start", "by the estimate the model barely does not fit")


@functools.cache
def starts() -> list[Log]:
    """Return every row of a known model whose device and share are known."""
    newer = [
        each
        for each in logs()
        if number(each.row["device_gib"]) and number(each.row["util"]) and is_known(each)
    ]
    return newer + estimated()


def is_known(log: Log) -> bool:
    """Tell whether the file that stands for the model's has its weights."""
    logged = number(log.row["model_loading_gib_per_gpu"]) * GIB
    return not logged or abs(log.estimate.weights / logged - 1) < 0.05


def went_well(start: Log) -> bool:
    failed = "not start" in start.row["note"] or "refused by vLLM" in start.row["note"]
    return not failed and bool(start.tokens or start.space > 0)


def estimated() -> list[Log]:
    return [each for each in older_logs() if not each.unknown]


def planned(start: Log) -> Explanation:
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
    options = options_of("".join(["engine=Python\noption.model_id=org/m\n", *lines]))
    devices = tuple(map(str, range(int(row["tp"]) * int(row.get("pp") or 1))))
    memory = int((number(row["device_gib"]) or H100_GIB) * GIB)
    hardware = Hardware(devices=devices, device_memory=memory, capability=start.step.capability)
    running = int(number(row["max_num_seqs"])) or 256
    capacity = Capacity(options, hardware, start.facts, {}, running, start.step.release)
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


def lines_of(start: Log) -> list[str] | None:
    """Return the words of its plan; None where it is refused."""
    try:
        made = planned(start)
    except PlanError:
        return None
    return [*made.notes, *made.reasons]


def test_what_ran_is_planned_and_what_did_not_start_is_not_promised() -> None:
    assert sum(not went_well(start) for start in starts()) >= 3
    for start in starts():
        lines = lines_of(start)
        if went_well(start):
            assert lines is not None, label_of(start)
        else:
            is_doubted = lines is None or any(word in " ".join(lines) for word in UNCERTAINTIES)
            assert is_doubted, label_of(start)


def label_of(each: Log) -> str:
    return " ".join(each.row[name] for name in ("model", "gpu", "vllm", "tp", "pp", "util"))


def test_predictions_are_near_and_half_of_them_within_a_hundredth() -> None:
    errors = {label_of(each): abs(each.space_error) for each in estimated()}
    assert {label: error for label, error in errors.items() if error > 5} == {}
    dense = [abs(each.space_error) for each in estimated() if each.row["kind"].startswith("dense")]
    assert len(dense) > 30
    assert statistics.median(dense) <= 1


def test_the_peak_of_a_step_is_what_was_measured() -> None:
    peaks = 0
    for each in estimated():
        # Of stages the logs show the first; the last decides.
        if each.row["pp"] in {"", "1"} and each.row["peak_activation_gib"]:
            peaks += 1
            encoder = 0.16 if "vl" in each.row["kind"] else 0.05
            measured = pytest.approx(number(each.row["peak_activation_gib"]), abs=encoder)
            assert each.estimate.activations / GIB == measured, label_of(each)
    assert peaks > 20


def test_as_many_tokens_as_were_logged_are_in_as_many_gib() -> None:
    """Groups, blocks and what a token takes: of windows and states too."""
    kinds = set()
    # Older logs have the GiB of a model's first stage, which may not be those that decide.
    of_one_stage = [each for each in older_logs() if each.row["pp"] in {"", "1"}]
    for each in (*of_one_stage, *logs()):
        error = each.layout_error
        # Published GiB have two digits. Of the one left out the type of the cache is not known.
        if error is not None and each.gpu != "RTX 3090":
            # Those of an APU are by a build of somebody's own.
            assert abs(error) < (0.2 if each.gpu == "AMD" else 0.1), label_of(each)
            kinds |= set(each.row["kind"].split())
    assert {"dense", "moe", "mla", "swa", "hybrid"} <= kinds


def graph_differences() -> list[float]:
    """Return the GiB by which CUDA graphs were mistaken, where 0.19 logged an estimate."""
    logged = [each for each in older_logs() if each.row["vllm"] == "0.19.0" and each.graphs]
    return [abs(each.graphs - number(each.row["cudagraph_gib"])) for each in logged]


def test_graphs_are_about_what_vllm_expects_of_them() -> None:
    assert len(graph_differences()) > 30
    assert statistics.median(graph_differences()) < 0.15


def test_the_page_has_the_errors_of_today() -> None:
    """docs/planner.md says how far predictions are from logs."""
    graphs = graph_differences()
    shares = {
        "KV cache, vLLM 0.11 to 0.20": [abs(each.space_error) for each in estimated()],
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
