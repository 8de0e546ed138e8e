"""Draw samples: throughput and time to first token over concurrency, CPU per token by process."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmark.measure import Sample

_SIZE = (7.5, 4.2)
_DPI = 110


def draw(samples: Sequence[Sample], targets: Sequence[str], stem: Path) -> list[Path]:
    """Write the pictures; return their paths, which begin with `stem`."""
    return [
        _over_concurrency(
            samples, targets, stem, "tokens-per-second", "tokens/s", lambda s: s.tokens_per_second
        ),
        _over_concurrency(
            samples, targets, stem, "first-response", "ms to the first response, p50", _first
        ),
        _by_process(samples, targets, stem),
    ]


def _first(sample: Sample) -> float:
    return sample.first_ms["p50"]


def _over_concurrency(
    samples: Sequence[Sample],
    targets: Sequence[str],
    stem: Path,
    name: str,
    label: str,
    value: Callable[[Sample], float],
) -> Path:
    """A line for each target: medians over the rounds, with the lowest and highest."""
    figure, axes = plt.subplots(figsize=_SIZE)
    for target in targets:
        own = [sample for sample in samples if sample.target == target]
        places = sorted({sample.concurrency for sample in own})
        found = [[value(s) for s in own if s.concurrency == place] for place in places]
        middle = [statistics.median(values) for values in found]
        below = [m - min(values) for m, values in zip(middle, found, strict=True)]
        above = [max(values) - m for m, values in zip(middle, found, strict=True)]
        axes.errorbar(places, middle, yerr=(below, above), marker="o", capsize=3, label=target)
    axes.set_xscale("log", base=2)
    places = sorted({sample.concurrency for sample in samples})
    axes.set_xticks(places, [str(place) for place in places])
    axes.set_ylim(bottom=0)
    axes.set(xlabel="requests at once", ylabel=label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return _write(figure, stem, name)


def _by_process(samples: Sequence[Sample], targets: Sequence[str], stem: Path) -> Path:
    """Bars of what is not the engine core, at the highest concurrency."""
    highest = max(sample.concurrency for sample in samples)
    own = [s for s in samples if s.concurrency == highest and s.cpu_us_per_token]
    kinds = dict.fromkeys(k for s in own for k in s.cpu_us_per_token if k != "engine")
    shown = [target for target in targets if any(s.target == target for s in own)][::-1]
    figure, axes = plt.subplots(figsize=_SIZE)
    left = [0.0] * len(shown)
    for kind in kinds:
        widths = [
            statistics.median(s.cpu_us_per_token.get(kind, 0.0) for s in own if s.target == target)
            for target in shown
        ]
        axes.barh(shown, widths, left=left, label=kind)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set(xlabel=f"µs of CPU a token beside the engine core, {highest} requests at once")
    axes.grid(alpha=0.3, axis="x")
    axes.legend(fontsize=8)
    return _write(figure, stem, "cpu-per-token")


def _write(figure: Any, stem: Path, name: str) -> Path:
    path = stem.with_name(f"{stem.name}-{name}.png")
    figure.savefig(path, dpi=_DPI, bbox_inches="tight")
    plt.close(figure)
    return path
