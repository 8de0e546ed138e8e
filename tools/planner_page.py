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

from planner_introduction import INTRODUCTION, LOGS

from lmi_backend.sizing.libraries import cuda_graphs
from lmi_backend.sizing.memory import CacheKind, MemoryEstimate, estimate_memory
from lmi_backend.sizing.model_facts import ModelFacts, read_model_facts
from lmi_backend.sizing.step import GRAPHS_DEDUCTED, Step
from lmi_backend.units import GIB

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "planner"
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


def planner_page() -> Iterator[str]:
    """Yield the lines of the page."""
    found = comparisons()
    compared = [each for each in found if each.estimate and not each.reason]
    errors = [abs(each.error) for each in compared]
    yield INTRODUCTION
    yield "## Predicted and measured\n"
    yield (
        f"{len(compared)} published logs with complete settings, weights computed from "
        f"config.json. GiB of KV cache on a device: median error {statistics.median(errors):.2f} "
        f"%, the largest {max(errors):.1f} %. The tokens are what the log's own GiB hold by the "
        "planner's layout, so they check layers, groups and blocks alone. Each line's vLLM links "
        "to the log. P is predicted, M measured, in GiB.\n"
    )
    graphs = graph_differences(found)
    yield (
        f"CUDA graphs compared with the {len(graphs)} estimates that 0.19 logs: half are within "
        f"{statistics.median(graphs):.2f} GiB, the farthest is {max(graphs):.2f} GiB off.\n"
    )
    yield (
        "| model | tp x pp | vLLM | weights P / M | peak activation P / M | non-torch P / M "
        "| KV cache P / M | error | tokens P / M |"
    )
    yield f"|{' --- |' * 9}"
    for each in sorted(compared, key=lambda each: (each.row["vllm"], each.row["model"])):
        yield from _line(each)
    yield "\n## Not compared\n"
    yield from _not_compared(found)
    # That module reads this one.
    import planner_tables  # noqa: PLC0415
    from planner_logs import logs  # noqa: PLC0415

    newest = logs()
    yield LOGS
    yield from planner_tables.table(newest)
    yield ""
    yield from planner_tables.summary(newest)


def graph_differences(found: list[Comparison]) -> list[float]:
    """Return the GiB by which CUDA graphs were mistaken, where 0.19 logged an estimate."""
    logged = [each for each in found if each.row["vllm"] == "0.19.0" and each.graphs]
    return [abs(each.graphs / GIB - _number(each.row["cudagraph_gib"])) for each in logged]


def _line(each: Comparison) -> Iterator[str]:
    row, found = each.row, each.estimate
    if found is None:
        return
    pairs = (
        (found.weights, row["model_loading_gib_per_gpu"]),
        (found.activations, row["peak_activation_gib"]),
        (found.overhead, row["non_torch_gib"]),
    )
    parts = [f"{predicted / GIB:.2f} / {measured or '-'}" for predicted, measured in pairs]
    parts.append(f"{found.kv_cache / GIB:.2f} / {each.measured:.2f}")
    tokens = f"{each.tokens:,} / {int(row['kv_tokens']):,}" if row["kv_tokens"] else "-"
    where = f"{row['tp']} x {row['pp'] or 1}"
    cells = (row["model"], where, f"[{row['vllm']}]({row['url']})", *parts)
    yield f"| {' | '.join(cells)} | {each.error:+.2f} % | {tokens} |"


def _not_compared(found: list[Comparison]) -> Iterator[str]:
    yield "| model | vLLM | why its GiB are not compared | tokens P / M |"
    yield "| --- | --- | --- | --- |"
    for each in found:
        if not each.reason:
            continue
        row = each.row
        tokens = f"{each.tokens:,} / {int(row['kv_tokens']):,}" if each.tokens else "-"
        link = f"[{row['vllm']}]({row['url']})"
        yield f"| {row['model']} | {link} | {each.reason} | {tokens} |"
