"""docs/planner.md: what the planner predicts, beside what vLLM's published logs say."""

from __future__ import annotations

import csv
import json
import re
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from page_parts import ROOT, table

from lmi_backend.sizing.libraries import cuda_graphs
from lmi_backend.sizing.memory import CacheKind, MemoryEstimate, estimate_memory
from lmi_backend.sizing.model_facts import ModelFacts, read_model_facts
from lmi_backend.sizing.step import GRAPHS_DEDUCTED, Step
from lmi_backend.units import GIB

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
        return _number(self.row["available_kv_gib_per_gpu"])

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
    step = replace(_step(row, release), release=max(release, GRAPHS_DEDUCTED))
    layers = facts.num_layers // int(row["pp"] or 1)
    graphs = cuda_graphs(facts, step, layers=layers)
    return Comparison(row, _unknown(row), _estimate(row, facts, release), graphs)


def _unknown(row: dict[str, str]) -> str:
    """Return why the GiB of a row say nothing about the planner; empty if they do."""
    if row["doubt"]:
        return row["doubt"]
    missing = [name for name in ("util", "max_num_batched_tokens", "max_num_seqs") if not row[name]]
    return f"not published: {', '.join(missing)}" if missing else ""


def _estimate(row: dict[str, str], facts: ModelFacts, release: tuple[int, int]) -> MemoryEstimate:
    device = _number(row["device_gib"])
    # "79.1?" and nothing are what the other logs of this GPU say.
    is_known = device and "?" not in row["device_gib"]
    total = device if is_known else _H100_GIB
    return estimate_memory(
        facts,
        degrees=(int(row["tp"]), int(row["pp"] or 1)),
        budget=int(total * (_number(row["util"]) or 0.9) * GIB),
        cache=CacheKind(
            dtype_bytes=_CACHE_BYTES[row["kv_cache_dtype"]],
            block_size=int(row["block_size"] or 16),
            length=int(row["max_model_len"] or 1),
        ),
        step=_step(row, release),
    )


def _step(row: dict[str, str], release: tuple[int, int]) -> Step:
    return Step(
        tokens=int(_number(row["max_num_batched_tokens"]) or 8192),
        sequences=int(_number(row["max_num_seqs"]) or 256),
        release=release,
        flashinfer_sampler=True if row["sampler"] == "flashinfer" else None,
        prefix_caching=row["prefix_caching"] == "true" if row["prefix_caching"] else None,
    )


def facts_of(config: dict[str, Any]) -> ModelFacts:
    """Return what is read of a config.json."""
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


def _number(text: str) -> float:
    match = re.match(r"~?(-?\d+(?:\.\d+)?)", text)
    return float(match[1]) if match else 0.0


def predicted() -> Iterator[str]:
    """Yield the lines of the tables of logs that are compared: all errors, and each log."""
    found = comparisons()
    shown = [each for each in found if each.estimate and not each.reason]
    errors = [abs(each.error) for each in shown]
    graphs = graph_differences(found)
    rows = [
        (
            "GiB of KV cache",
            str(len(errors)),
            *(f"{each:.2f} %" for each in _middle_and_most(errors)),
        ),
        (
            "CUDA graphs",
            str(len(graphs)),
            *(f"{each:.2f} GiB" for each in _middle_and_most(graphs)),
        ),
    ]
    yield from table(("what", "logs", "median error", "the largest"), rows)
    yield ""
    heads = ["model", "tp x pp", "vLLM", "weights P / M", "peak activation P / M"]
    heads += ["non-torch P / M", "KV cache P / M", "error", "tokens P / M"]
    ordered = sorted(shown, key=lambda each: (each.row["vllm"], each.row["model"]))
    yield from table(heads, (_cells(each, each.estimate) for each in ordered if each.estimate))


def _middle_and_most(errors: list[float]) -> tuple[float, float]:
    return statistics.median(errors), max(errors)


def graph_differences(found: list[Comparison]) -> list[float]:
    """Return the GiB by which CUDA graphs were mistaken, where 0.19 logged an estimate."""
    logged = [each for each in found if each.row["vllm"] == "0.19.0" and each.graphs]
    return [abs(each.graphs / GIB - _number(each.row["cudagraph_gib"])) for each in logged]


def _cells(each: Comparison, found: MemoryEstimate) -> Iterator[str]:
    row = each.row
    yield from (row["model"], f"{row['tp']} x {row['pp'] or 1}", f"[{row['vllm']}]({row['url']})")
    for predicted, measured in (
        (found.weights, row["model_loading_gib_per_gpu"]),
        (found.activations, row["peak_activation_gib"]),
        (found.overhead, row["non_torch_gib"]),
        (found.kv_cache, f"{each.measured:.2f}"),
    ):
        yield f"{predicted / GIB:.2f} / {measured or '-'}"
    yield f"{each.error:+.2f} %"
    yield f"{each.tokens:,} / {int(row['kv_tokens']):,}" if row["kv_tokens"] else "-"


def not_compared() -> Iterator[str]:
    """Yield the lines of the table of the other logs, each with the reason."""
    rows = [
        (
            each.row["model"],
            f"[{each.row['vllm']}]({each.row['url']})",
            each.reason,
            f"{each.tokens:,} / {int(each.row['kv_tokens']):,}" if each.tokens else "-",
        )
        for each in comparisons()
        if each.reason
    ]
    yield from table(("model", "vLLM", "why its GiB are not compared", "tokens P / M"), rows)
