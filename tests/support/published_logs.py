"""Published logs of vLLM, and what the planner makes of their settings.

`comparisons` has those of measured.csv, `logs` those of measured_2026.csv.
"""

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
    AdapterSlots,
    CacheKind,
    MemoryEstimate,
    adapter_bytes,
    estimate_memory,
)
from lmi_backend.sizing.model_facts import ModelFacts, mtp_layers, read_model_facts
from lmi_backend.sizing.step import GRAPHS_DEDUCTED, Step, cuda_graphs
from tests.support.facts import with_fields
from tests.support.places import ROOT

DATA = ROOT / "tests" / "data" / "planner"
_H100_GIB = 79.19
_OLDEST = (0, 11)
_CACHE_BYTES = {"": 2.0, "fp8": 1.0, "fp8_e5m2": 1.0}


@dataclass(frozen=True)
class Comparison:
    """One published log, and what the planner makes of its settings."""

    row: dict[str, str]
    reason: str = ""
    """Why the GiB cannot be compared; empty if they can."""
    estimate: MemoryEstimate | None = None
    graphs: int = 0
    """Bytes of CUDA graphs, whether the release deducts them or not."""

    @property
    def measured(self) -> float:
        """GiB for the cache on the device that decides, 0 if the log does not say.

        Where stages have different amounts the log's first rank has more than is used.
        """
        tokens, found = self.row["kv_tokens"], self.estimate
        is_staged = self.row["pp"] not in {"", "1"}
        if found and tokens and (is_staged or not self.row["available_kv_gib_per_gpu"]):
            return int(tokens) / found.block_size * found.block_bytes / GIB
        return number(self.row["available_kv_gib_per_gpu"])

    @property
    def error(self) -> float:
        """Predicted minus measured, in percent of what was measured."""
        if self.estimate is None or self.reason:
            return 0.0
        return 100 * (self.estimate.kv_cache / GIB / self.measured - 1)

    @property
    def tokens(self) -> int:
        """Tokens that the log's own GiB hold by the planner's layout; 0 if it does not say."""
        found = self.estimate
        if found is None or not self.row["kv_tokens"] or not found.block_bytes:
            return 0
        blocks = int(self.measured * GIB) // found.block_bytes
        return found.layout.logged_tokens(blocks, found.length, found.release)

    @property
    def token_step(self) -> float:
        """Tokens by which `tokens` may be off: GiB are published with two digits."""
        if self.estimate is None:
            return 0.0
        return self.tokens / self.measured * 0.005 + 2 * self.estimate.block_size


@cache
def comparisons() -> list[Comparison]:
    """Return every published log with its prediction, or with the reason why it has none."""
    configs = known_configs()
    with (DATA / "measured.csv").open(encoding="utf-8", newline="") as file:
        return [_compare(row, configs) for row in csv.DictReader(file)]


def known_configs() -> dict[str, Any]:
    """Return each model's config.json: the published file, else the fields that are known of it."""
    published = json.loads((DATA / "published.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = json.loads((DATA / "configs.json").read_text(encoding="utf-8"))
    return found | {name: each["config"] for name, each in published.items()}


def _compare(row: dict[str, str], configs: dict[str, Any]) -> Comparison:
    release = _release(row["vllm"])
    config = configs.get(row["model"])
    if release is None:
        return Comparison(row, "an image of its own, of no named release")
    if release < _OLDEST:
        return Comparison(row, "a vLLM older than 0.11, the oldest that is served")
    if config is None:
        return Comparison(row, "no public config.json of the model is known here")
    facts = facts_of(config)
    step = replace(_step_of(row, release), release=max(release, GRAPHS_DEDUCTED))
    layers = facts.shape.num_layers // int(row["pp"] or 1)
    graphs = cuda_graphs(facts, step, layers=layers)
    return Comparison(row, _unknown(row), _estimate(row, facts, release), graphs)


def _unknown(row: dict[str, str]) -> str:
    """Return why the GiB of a row say nothing about the planner; empty if they do."""
    if row["doubt"]:
        return row["doubt"]
    missing = [name for name in ("util", "max_num_batched_tokens", "max_num_seqs") if not row[name]]
    return f"not published: {', '.join(missing)}" if missing else ""


def _estimate(row: dict[str, str], facts: ModelFacts, release: tuple[int, int]) -> MemoryEstimate:
    device = number(row["device_gib"])
    # "79.1?" and nothing are what the other logs of this GPU say.
    is_known = device and "?" not in row["device_gib"]
    total = device if is_known else _H100_GIB
    return estimate_memory(
        facts,
        degrees=(int(row["tp"]), int(row["pp"] or 1)),
        budget=int(total * (number(row["util"]) or 0.9) * GIB),
        cache=CacheKind(
            dtype_bytes=_CACHE_BYTES[row["kv_cache_dtype"]],
            block_size=int(row["block_size"] or 16),
            length=int(row["max_model_len"] or 1),
        ),
        step=_step_of(row, release),
    )


def _step_of(row: dict[str, str], release: tuple[int, int]) -> Step:
    return Step(
        tokens=int(number(row["max_num_batched_tokens"]) or 8192),
        sequences=int(number(row["max_num_seqs"]) or 256),
        release=release,
        flashinfer_sampler=True if row["sampler"] == "flashinfer" else None,
        prefix_caching=row["prefix_caching"] == "true" if row["prefix_caching"] else None,
    )


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


def _release(text: str) -> tuple[int, int] | None:
    match = re.match(r"~?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def graph_differences(found: list[Comparison]) -> list[float]:
    """Return the GiB by which CUDA graphs were mistaken, where 0.19 logged an estimate."""
    logged = [each for each in found if each.row["vllm"] == "0.19.0" and each.graphs]
    return [abs(each.graphs / GIB - number(each.row["cudagraph_gib"])) for each in logged]


_CAPABILITIES: Final = {
    "T4": 75, "A100": 80, "L4 24GB": 89, "RTX 3090": 86, "24GB": 86, "48GB": 89, "RTX 40": 89,
    "L40S": 89, "H100": 90, "H200": 90, "MI300X": 90, "B200": 100, "GB200": 100, "B300": 103,
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
        return 100 * (self.estimate.logged_tokens / self.tokens - 1)

    @property
    def has_range(self) -> bool:
        """Whether what was logged is between the fewest and the most."""
        made = self.estimate
        if not self.tokens:
            least, most = made.kv_cache - made.less, made.kv_cache + made.more
            return least <= self.space * GIB <= most
        least, most = (each.logged_tokens for each in made.bounds)
        return least <= self.tokens <= most

    @property
    def layout_error(self) -> float | None:
        """Percent by which the planner's layout of the logged GiB misses the logged tokens."""
        if not self.space or not self.tokens:
            return None
        layout = self.estimate.layout
        found = layout.logged_tokens(
            int(self.space * GIB) // layout.block_bytes, self.cache.length, self.step.release
        )
        return 100 * (found / self.tokens - 1)


@cache
def logs() -> list[Log]:
    """Return the rows with a known model."""
    models = json.loads((DATA / "models_2026.json").read_text(encoding="utf-8"))
    configs = known_configs()
    with (DATA / "measured_2026.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] in models]
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
    missing = [name for name in _SETTINGS if not row[name]]
    unknown = f"not published: {', '.join(missing)}" if missing else model.get("doubt", "")
    unknown = unknown or next((text for text in _OF_NOTES if text in row["note"]), "")
    cache = CacheKind(
        dtype_bytes=1 if row["kv_cache_dtype"].startswith("fp8") else 2,
        length=int(number(row["max_model_len"])),
    )
    budget = int(number(row["device_gib"]) * (number(row["util"]) or 0.92) * GIB)
    slots = AdapterSlots(count=model.get("adapters", 0), rank=16)
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
        is_instinct="MI300X" in row["gpu"],
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
