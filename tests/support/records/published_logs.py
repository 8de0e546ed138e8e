"""Published logs of vLLM, and what the planner makes of their settings."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from lmi_backend.printable import GIB
from lmi_backend.sizing.memory import (
    UNSURE,
    CacheKind,
    MemoryEstimate,
    adapter_bytes,
    estimate_memory,
)
from lmi_backend.sizing.model_facts import ModelFacts, mtp_layers, read_model_facts
from lmi_backend.sizing.step import GRAPHS_DEDUCTED, Step, cuda_graphs
from tests.support.records.facts import with_fields
from tests.support.run.places import ROOT

DATA = ROOT / "tests" / "data" / "planner"
H100_GIB = 79.19
_OLDEST_MINOR = 11


def known_configs() -> dict[str, Any]:
    """Return each model's config.json: the published file, else the fields that are known of it."""
    published = json.loads((DATA / "published.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = json.loads((DATA / "configs.json").read_text(encoding="utf-8"))
    return found | {name: each["config"] for name, each in published.items()}


def facts_of(config: dict[str, Any]) -> ModelFacts:
    return _facts_of(json.dumps(config))


@cache
def _facts_of(text: str) -> ModelFacts:
    # Most models have several logs, and the largest take a tenth of a second to read.
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(text, encoding="utf-8")
        facts = read_model_facts(Path(folder))
    if facts is None:
        raise ValueError(f"no config.json: {text}")
    return facts


_CAPABILITIES: Final = {
    "T4": 75, "A100": 80, "L4 24GB": 89, "RTX 3090": 86, "24GB": 86, "48GB": 89, "RTX 40": 89,
    "L40S": 89, "H100": 90, "H200": 90, "B200": 100, "GB200": 100, "B300": 103,
    "RTX 5090": 120, "RTX PRO": 120, "GB10": 121, "V100": 70, "RTX 2000 Ada": 89, "GH200": 90,
    "AMD": 90,
}  # fmt: skip
_OF_NOTES: Final = (
    "first runner, by environment",
    "another server grows on the same GPU",
    "GiB are of the first stage",
)
"""What a note says of a start that is no plan's."""
_SETTINGS: Final = ("device_gib", "util", "max_num_batched_tokens", "max_num_seqs")


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

    @property
    def gpu(self) -> str:
        return next((name for name in _CAPABILITIES if self.row["gpu"].startswith(name)), "other")

    @property
    def tokens(self) -> int:
        """Tokens that were logged; 0 if they were not."""
        return int(self.row["kv_tokens"] or 0)

    @property
    def space(self) -> float:
        """GiB of cache that were logged; 0 if they were not."""
        return number(self.row["available_kv_gib_per_gpu"])

    @property
    def error(self) -> float:
        """Predicted minus logged tokens, in percent; where none were logged, GiB of cache."""
        if not self.tokens:
            return 100 * (self.estimate.kv_cache / GIB / self.space - 1)
        return 100 * (logged_tokens(self.estimate) / self.tokens - 1)

    @property
    def space_error(self) -> float:
        """Predicted minus logged GiB of cache, in percent.

        Where stages have different amounts the log's first rank has more than is used: its tokens
        tell what the others have.
        """
        space = self.space
        if self.tokens and (not space or self.row["pp"] not in {"", "1"}):
            space = self.tokens / self.estimate.block_size * self.estimate.block_bytes / GIB
        return 100 * (self.estimate.kv_cache / GIB / space - 1)

    @property
    def graphs(self) -> float:
        """GiB of CUDA graphs, whether the release deducts them or not."""
        step = replace(self.step, release=max(self.step.release, GRAPHS_DEDUCTED))
        layers = self.facts.shape.num_layers // int(self.row["pp"] or 1)
        return cuda_graphs(self.facts, step, layers=layers) / GIB

    @property
    def has_range(self) -> bool:
        """Whether what was logged is between the fewest and the most."""
        made = self.estimate
        if not self.tokens:
            least, most = made.kv_cache - made.less, made.kv_cache + made.more
            return least <= self.space * GIB <= most
        least, most = map(logged_tokens, made.bounds)
        return least <= self.tokens <= most

    @property
    def layout_error(self) -> float | None:
        """Percent by which the planner's layout of the logged GiB misses the logged tokens."""
        if not self.space or not self.tokens:
            return None
        found = logged_tokens(replace(self.estimate, kv_cache=int(self.space * GIB)))
        return 100 * (found / self.tokens - 1)


def logged_tokens(estimate: MemoryEstimate) -> int:
    """Return what the release of vLLM writes as "GPU KV cache size"."""
    if estimate.release < (0, 20, 2):
        return estimate.num_blocks // estimate.layout.groups * estimate.block_size
    return estimate.num_tokens


def _rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def older_logs() -> list[Log]:
    """Return the rows of measured.csv with a known model, and a release that is served."""
    configs = known_configs()
    rows = (row for row in _rows("measured.csv") if row["model"] in configs)
    return [_older_log(row, facts_of(configs[row["model"]])) for row in rows if _is_served(row)]


def _is_served(row: dict[str, str]) -> bool:
    return bool(re.match(r"0\.\d+", row["vllm"])) and _minor(row) >= _OLDEST_MINOR


def _minor(row: dict[str, str]) -> int:
    return int(row["vllm"].split(".")[1])


def _older_log(row: dict[str, str], facts: ModelFacts) -> Log:
    step = Step(
        tokens=int(number(row["max_num_batched_tokens"]) or 8192),
        sequences=int(number(row["max_num_seqs"]) or 256),
        release=(0, _minor(row)),
        flashinfer_sampler=True if row["sampler"] == "flashinfer" else None,
        prefix_caching=row["prefix_caching"] == "true" if row["prefix_caching"] else None,
    )
    cache = CacheKind(
        dtype_bytes=1 if row["kv_cache_dtype"] else 2,
        block_size=int(row["block_size"] or 16),
        length=int(row["max_model_len"] or 1),
    )
    # "79.1?" and nothing are what the other logs of this GPU say.
    device = ("?" not in row["device_gib"] and number(row["device_gib"])) or H100_GIB
    budget = int(device * (number(row["util"]) or 0.9) * GIB)
    degrees = int(row["tp"]), int(row["pp"] or 1)
    made = estimate_memory(facts, degrees=degrees, budget=budget, cache=cache, step=step)
    return Log(row, facts, step, cache, made, row["doubt"] or _missing(row, *_SETTINGS[1:]))


def _missing(row: dict[str, str], *names: str) -> str:
    missing = [name for name in names if not row[name]]
    return f"not published: {', '.join(missing)}" if missing else ""


@cache
def logs() -> list[Log]:
    """Return the rows of measured_2026.csv with a known model."""
    models = json.loads((DATA / "models_2026.json").read_text(encoding="utf-8"))
    configs = known_configs()
    rows = (row for row in _rows("measured_2026.csv") if row["model"] in models)
    return [_log(row, models[row["model"]], configs) for row in rows]


def _log(row: dict[str, str], model: dict[str, Any], configs: dict[str, Any]) -> Log:
    changes = model.get("changes", {})
    config = model.get("config") or configs[model["of"]] | changes
    without = {name for name, value in changes.items() if value is None}
    facts = facts_of({name: value for name, value in config.items() if name not in without})
    if drafted := model.get("mtp", 0):
        facts = with_fields(facts, num_mtp_layers=facts.shape.num_mtp_layers or 1)
        facts = replace(facts, draft=mtp_layers(facts), drafted_tokens=drafted)
    if "without its encoder" in row["note"] or "no images and no sound" in row["note"]:
        facts = with_fields(facts, vision_parameters=0, sound_parameters=0)
    step = _step(row)
    unknown = _missing(row, *_SETTINGS) or model.get("doubt", "")
    unknown = unknown or next((text for text in _OF_NOTES if text in row["note"]), "")
    cache = CacheKind(
        dtype_bytes=1 if row["kv_cache_dtype"].startswith("fp8") else 2,
        length=int(number(row["max_model_len"])),
    )
    budget = int(number(row["device_gib"]) * (number(row["util"]) or 0.92) * GIB)
    slots = model.get("adapters", 0) * 16 * 2
    tensor, pipeline = int(row["tp"] or 1), int(row["pp"] or 1)
    held = adapter_bytes(facts, slots, tensor=tensor, pipeline=pipeline)
    made = estimate_memory(
        facts, degrees=(tensor, pipeline), budget=budget - held, cache=cache, step=step
    )
    made = replace(made, weights=made.weights + held, less=made.less + int(UNSURE * held))
    return Log(row, facts, step, cache, made, unknown)


def _step(row: dict[str, str]) -> Step:
    found = re.findall(r"0\.(\d+)(?:\.([1-9]))?", row["vllm"])
    minor, third = found[-1 if "-" in row["vllm"] else 0] if found else ("30", "")
    note = row["note"]
    gpu = (level for name, level in _CAPABILITIES.items() if row["gpu"].startswith(name))
    return Step(
        tokens=int(number(row["max_num_batched_tokens"]) or 2048),
        sequences=int(number(row["max_num_seqs"]) or 256),
        # Of "0.28-0.30" the latest; where none is said the newest of the year's summer.
        release=(0, int(minor), *([int(third)] if third else [])),
        capability=next(gpu, 86),
        graphs="eager" not in note,
        flashinfer_sampler=False if "sampler off" in note else None,
        prefix_caching=True if "prefix caching" in note or "MTP" in row["model"] else None,
    )


def number(text: str) -> float:
    """Return the number a cell begins with; 0 if there is none."""
    match = re.match(r"~?(-?\d+(?:\.\d+)?)", text)
    return float(match[1]) if match else 0.0


def compared(found: list[Log]) -> list[Log]:
    """Return those whose settings are known and whose cache was logged."""
    return [each for each in found if is_compared(each)]


def is_compared(log: Log) -> bool:
    """Tell whether its settings are known and its cache was logged."""
    started = "does not start" not in log.row["note"]
    return not log.unknown and (bool(log.tokens) or (log.space > 0 and started))
