"""Samples to files: JSON, a table for people, pictures."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmark.measure import Sample


def write_report(samples: list[Sample], folder: Path, name: str) -> list[Path]:
    """Write the files of a run; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"machine": machine(), "samples": [asdict(sample) for sample in samples]}
    paths = [folder / f"{name}.json", folder / f"{name}.md"]
    paths[0].write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    paths[1].write_text("\n".join(table(samples)) + "\n", encoding="utf-8")
    return paths


def machine() -> dict[str, Any]:
    """Return what a reader must know of the machine."""
    names = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
    }


def table(samples: list[Sample]) -> Iterable[str]:
    """Yield the lines of the table: medians over the rounds, with the lowest and highest."""
    here = machine()
    yield (
        f"{here['cores']} cores of {here['processor']}, {here['memory_gib']} GiB. Medians of the "
        "rounds, lowest to highest in brackets. CPU of the engine core is left out: it counts busy "
        "waiting.\n"
    )
    yield (
        "| target | at once | tokens/s | first response ms, p50 | gap ms, p50 / p99 | responses a "
        "request | CPU beside the engine, us a token | by process |"
    )
    yield "| --- " * 8 + "|"
    for concurrency in sorted({sample.concurrency for sample in samples}):
        for target in sorted({sample.target for sample in samples}):
            rows = [s for s in samples if (s.target, s.concurrency) == (target, concurrency)]
            if rows:
                yield _row(rows)


def _row(rows: list[Sample]) -> str:
    kinds = [kind for kind in rows[0].cpu_us_per_token if kind != "engine"]
    shares = (
        f"{kind} {_middle(row.cpu_us_per_token.get(kind, 0.0) for row in rows):.1f}"
        for kind in kinds
    )
    cells = [
        rows[0].target,
        str(rows[0].concurrency),
        _range((row.tokens_per_second for row in rows), 0),
        _range((row.first_ms["p50"] for row in rows), 1),
        f"{_middle(row.gap_ms['p50'] for row in rows):.1f} / "
        f"{_middle(row.gap_ms['p99'] for row in rows):.1f}",
        f"{_middle(row.responses_per_request for row in rows):.1f}",
        _range((row.overhead for row in rows), 1),
        ", ".join(shares),
    ]
    return f"| {' | '.join(cells)} |"


def _range(values: Iterable[float], digits: int) -> str:
    found = list(values)
    middle = f"{statistics.median(found):,.{digits}f}"
    if len(found) == 1:
        return middle
    return f"{middle} ({min(found):,.{digits}f} to {max(found):,.{digits}f})"


def _middle(values: Iterable[float]) -> float:
    return statistics.median(values)
