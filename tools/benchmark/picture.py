"""Draw the CPU per token of samples, by process."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmark.measure import Sample

_SIZE = (7.5, 4.2)
_DPI = 110


def draw(samples: Sequence[Sample], targets: Sequence[str], stem: Path) -> Path:
    """Draw bars of what is not the engine core, at the highest concurrency; return the file."""
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
    path = stem.with_name(f"{stem.name}-cpu-per-token.png")
    figure.savefig(path, dpi=_DPI, bbox_inches="tight")
    plt.close(figure)
    return path
