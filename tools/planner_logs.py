"""Logs of 2026 beside what the planner says: errors by row, by kind of GPU and by release.

.venv/bin/python tools/planner_logs.py

What was fitted to such logs is fitted again without each of them, and compared with the one that
was left out.
"""

from __future__ import annotations

import csv
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from planner_page import DATA, facts_of, known_configs

from lmi_backend.sizing import step as steps
from lmi_backend.sizing.adapters import UNSURE, AdapterSlots, adapter_bytes
from lmi_backend.sizing.draft import mtp_layers
from lmi_backend.sizing.memory import CacheKind, MemoryEstimate, estimate_memory
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.sizing.step import Step
from lmi_backend.units import GIB

_CAPABILITIES: Final = {
    "T4": 75, "A100": 80, "L4 24GB": 89, "RTX 3090": 86, "24GB": 86, "48GB": 89, "RTX 40": 89,
    "L40S": 89, "H100": 90, "H200": 90, "MI300X": 90, "B200": 100, "GB200": 100, "B300": 103,
    "RTX 5090": 120, "RTX PRO": 120, "GB10": 121,
}  # fmt: skip
_OF_NOTES: Final = ("first runner, by environment", "another server grows on the same GPU")
"""What a note says of a start that is no plan's."""
_SETTINGS: Final = ("device_gib", "util", "max_num_batched_tokens", "max_num_seqs")
_FACTORS: Final = range(17)


@dataclass(frozen=True)
class Log:
    """One row, and what the planner makes of it."""

    row: dict[str, str]
    facts: ModelFacts
    step: Step
    cache: CacheKind
    estimate: MemoryEstimate
    unknown: str
    """Why its GiB say nothing about the planner; empty if they do."""
    source: str
    """What is known of its config.json."""

    @property
    def gpu(self) -> str:
        """Kind of GPU."""
        return next((name for name in _CAPABILITIES if self.row["gpu"].startswith(name)), "other")

    @property
    def tokens(self) -> int:
        """Tokens that were logged; 0 if they were not."""
        return int(self.row["kv_tokens"] or 0)

    @property
    def error(self) -> float:
        """Predicted minus logged tokens, in percent."""
        return 100 * (self.estimate.num_tokens / self.tokens - 1)

    @property
    def has_range(self) -> bool:
        """Whether what was logged is between the fewest and the most tokens."""
        least, most = self.estimate.token_range
        return least <= self.tokens <= most

    @property
    def layout_error(self) -> float | None:
        """Percent by which the planner's layout of the logged GiB misses the logged tokens."""
        space = number(self.row["available_kv_gib_per_gpu"])
        if not space or not self.tokens:
            return None
        layout = self.estimate.layout
        found = layout.tokens(
            int(space * GIB) // layout.block_bytes, self.cache.length, self.step.release
        )
        return 100 * (found / self.tokens - 1)


def logs() -> list[Log]:
    """Return the rows with a known model."""
    models = json.loads((DATA / "models_2026.json").read_text(encoding="utf-8"))
    configs = known_configs()
    with (DATA / "measured_2026.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] in models]
    return [_log(row, models[row["model"]], configs) for row in rows]


def degrees_of(row: dict[str, str]) -> tuple[int, int]:
    """Return the devices each layer is split over, and the stages."""
    return int(row["tp"] or 1), int(row["pp"] or 1)


def _log(row: dict[str, str], model: dict[str, Any], configs: dict[str, Any]) -> Log:
    changes = model.get("changes", {})
    config = model.get("config") or configs[model["of"]] | changes
    without = {name for name, value in changes.items() if value is None}
    facts = facts_of({name: value for name, value in config.items() if name not in without})
    if drafted := model.get("mtp", 0):
        facts = replace(facts, num_mtp_layers=facts.num_mtp_layers or 1)
        facts = replace(facts, draft=mtp_layers(facts), drafted_tokens=drafted)
    if "without its encoder" in row["note"] or "no images and no sound" in row["note"]:
        facts = replace(facts, vision_parameters=0, sound_parameters=0)
    step = _step(row)
    missing = [name for name in _SETTINGS if not row[name]]
    unknown = f"not published: {', '.join(missing)}" if missing else model.get("doubt", "")
    unknown = unknown or next((text for text in _OF_NOTES if text in row["note"]), "")
    cache = CacheKind(
        dtype_bytes=1 if row["kv_cache_dtype"].startswith("fp8") else 2,
        length=int(number(row["max_model_len"])),
    )
    budget = int(number(row["device_gib"]) * (number(row["util"]) or 0.92) * GIB)
    slots = AdapterSlots(count=model.get("adapters", 0), rank=16)
    tensor, pipeline = degrees_of(row)
    held = adapter_bytes(facts, slots, tensor=tensor, pipeline=pipeline)
    made = estimate_memory(
        facts, degrees=(tensor, pipeline), budget=budget - held, cache=cache, step=step
    )
    made = replace(made, weights=made.weights + held, less=made.less + int(UNSURE * held))
    return Log(row, facts, step, cache, made, unknown, model["why"])


def _step(row: dict[str, str]) -> Step:
    found = re.findall(r"0\.(\d+)", row["vllm"])
    note = row["note"]
    gpu = (level for name, level in _CAPABILITIES.items() if row["gpu"].startswith(name))
    return Step(
        tokens=int(number(row["max_num_batched_tokens"]) or 2048),
        sequences=int(number(row["max_num_seqs"]) or 256),
        # Of "0.28-0.30" the latest; where none is said the newest of the year's summer.
        release=(0, int(found[-1 if "-" in row["vllm"] else 0])) if found else (0, 30),
        capability=next(gpu, 86),
        flashinfer_sampler=False if "sampler off" in note else None,
        prefix_caching=True if "prefix caching" in note or "MTP" in row["model"] else None,
    )


def number(text: str) -> float:
    """Return the number a cell begins with; 0 if there is none."""
    match = re.match(r"~?(-?\d+(?:\.\d+)?)", text)
    return float(match[1]) if match else 0.0


def compared(found: list[Log]) -> list[Log]:
    """Return those whose settings are known and whose tokens were logged."""
    return [each for each in found if each.tokens and not each.unknown]


def by(found: list[Log], name: str) -> dict[str, list[float]]:
    """Return the errors of compared rows by kind of GPU ("gpu") or by release ("vllm")."""
    errors: dict[str, list[float]] = {}
    for each in compared(found):
        key = each.gpu if name == "gpu" else f"0.{each.step.release[1]}"
        errors.setdefault(key, []).append(each.error)
    return dict(sorted(errors.items()))


def left_out(found: list[Log]) -> Iterator[tuple[Log, int, float]]:
    """Yield rows with gated delta nets, the factor of all others, and the error it gives here.

    The factor says how many times the width of its values a token takes in such a layer.
    """
    nets = [each for each in compared(found) if each.facts.states.delta and each.step.tokens > 2048]
    for each in nets:
        others = [other for other in nets if other is not each]
        best = min(_FACTORS, key=lambda factor: sum(abs(_gap(o, factor)) for o in others))
        space = each.estimate.kv_cache / GIB
        yield each, best, 100 * _gap(each, best) / (space - _gap(each, steps.DELTA_WIDTHS))


def _gap(log: Log, factor: int) -> float:
    """Return the GiB by which the cache is predicted too large with a factor."""
    shape = log.facts.states.delta
    if shape is None:
        return 0.0
    changed = (factor - steps.DELTA_WIDTHS) * shape.value_heads * shape.value_dim * 2
    logged = number(log.row["model_loading_gib_per_gpu"]) * GIB or log.estimate.weights
    weights = log.estimate.weights - logged
    space = log.estimate.kv_cache + weights - changed * log.step.tokens
    return space / GIB - number(log.row["available_kv_gib_per_gpu"])


def kernels_left_out(found: list[Log]) -> Iterator[tuple[str, Log, float]]:
    """Yield what was fitted, a row it shows in, and the error with the mean of the other rows.

    A row says a constant by the GiB that its cache lacks, with the logged weights.
    """
    for name, has in _KERNELS.items():
        rows = [each for each in compared(found) if _has_usual_graphs(each) and has(each)]
        rows = [each for each in rows if number(_space(each))]
        gaps = [_gap(each, steps.DELTA_WIDTHS) for each in rows]
        for at, (each, gap) in enumerate(zip(rows, gaps, strict=True)):
            others = gaps[:at] + gaps[at + 1 :]
            left = gap - statistics.mean(others) if others else gap
            yield name, each, 100 * left / number(_space(each))


def _has_usual_graphs(log: Log) -> bool:
    """Tell whether vLLM's estimate of the graphs, which is multiplied, says anything of kernels."""
    return number(log.row["cudagraph_gib"]) >= 0 and log.gpu != "B200"


def _space(log: Log) -> str:
    return log.row["available_kv_gib_per_gpu"]


def _has_flashinfer(log: Log) -> bool:
    step, facts = log.step, log.facts
    is_first = step.release >= (0, 22) and not steps.has_second_runner(step, facts)
    return bool(facts.states.layers) and is_first and step.samples_with_flashinfer


_KERNELS: Final[dict[str, Callable[[Log], bool]]] = {
    "FlashInfer's kernels with states": _has_flashinfer,
    "kernels of NVFP4": lambda log: log.facts.has_4_bit_floats and log.estimate.cuda_graphs > 0,
}


def table(found: list[Log]) -> Iterator[str]:
    """Yield the lines of a table of all rows."""
    yield (
        "| model | GPU | vLLM | weights P / M | KV cache P / M | tokens P / M | error | in range |"
    )
    yield f"|{' --- |' * 8}"
    for each in sorted(found, key=lambda log: (log.gpu, log.row["vllm"], log.row["model"])):
        row, made = each.row, each.estimate
        tokens = f"{made.num_tokens:,} / {each.tokens:,}" if each.tokens else "-"
        is_shown = bool(each.tokens) and not each.unknown
        error = f"{each.error:+.1f} %" if is_shown else each.unknown or "-"
        cells = (
            row["model"],
            row["gpu"] or "-",
            row["vllm"],
            f"{made.weights / GIB:.2f} / {row['model_loading_gib_per_gpu'] or '-'}",
            f"{made.kv_cache / GIB:.2f} / {row['available_kv_gib_per_gpu'] or '-'}",
            tokens,
            error,
            ("yes" if each.has_range else "no") if is_shown else "-",
        )
        yield f"| {' | '.join(cells)} |"


def summary(found: list[Log]) -> Iterator[str]:
    """Yield sentences about the errors."""
    errors = [each.error for each in compared(found)]
    median = statistics.median(abs(each) for each in errors)
    most = sum(each > 0 for each in errors)
    yield (
        f"{len(errors)} of {len(found)} rows have known settings: median error of the tokens "
        f"{median:.1f} %, {most} promise too much and {len(errors) - most} too little."
    )
    yield "\n| kind of GPU or release | median error | rows |"
    yield f"|{' --- |' * 3}"
    for name in ("gpu", "vllm"):
        for key, each in by(found, name).items():
            yield f"| {key} | {statistics.median(map(abs, each)):.1f} % | {len(each)} |"
    yield "\nFitted without a row, and with its logged weights, its GiB of cache have this error:\n"
    yield "| what is fitted | row | error |"
    yield f"|{' --- |' * 3}"
    for log, best, error in left_out(found):
        yield f"| widths of a gated delta net, {best} | {_name(log)} | {error:+.1f} % |"
    for name, log, error in kernels_left_out(found):
        yield f"| {name} | {_name(log)} | {error:+.1f} % |"


def _name(log: Log) -> str:
    return f"{log.row['model']}, {log.row['gpu']}, {log.row['vllm']}"


def main() -> int:
    """Write the table and the summary."""
    found = logs()
    sys.stdout.writelines(f"{line}\n" for line in (*table(found), "", *summary(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
