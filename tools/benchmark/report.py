"""Samples to files: JSON, a table for people, and a picture."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmark.measure import Sample

_HEAD = (
    "target",
    "at once",
    "tokens/s",
    "requests/s",
    "first response ms, p50 / p99",
    "gap ms, p50 / p99",
    "ms a token, p50 / p99",
    "events an answer",
    "CPU beside the engine, µs a token",
    "by process",
    "client, µs a token",
    "MiB",
    "start, s",
)


def write_report(
    samples: list[Sample],
    targets: Sequence[str],
    folder: Path,
    name: str,
    notes: Sequence[str] = (),
) -> list[Path]:
    """Write the files of a run; return their paths.

    Args:
        notes: what a reader must know of a target, a sentence each.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / name
    data = {"machine": machine(), "notes": notes, "samples": [asdict(sample) for sample in samples]}
    rows = list(table(samples, targets))
    from benchmark.picture import draw  # noqa: PLC0415  it takes a second

    texts = {
        ".json": json.dumps(data, indent=1) + "\n",
        ".md": "\n".join(_markdown(rows, notes)) + "\n",
    }
    for ending, text in texts.items():
        stem.with_name(name + ending).write_text(text, encoding="utf-8")
    return [*(stem.with_name(name + ending) for ending in texts), draw(samples, targets, stem)]


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
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def table(samples: list[Sample], targets: Sequence[str]) -> Iterator[list[str]]:
    """Yield the rows of the table: medians over the rounds, with the lowest and highest."""
    for concurrency in sorted({sample.concurrency for sample in samples}):
        for target in targets:
            rows = [s for s in samples if (s.target, s.concurrency) == (target, concurrency)]
            if rows:
                yield _row(rows)


def _about(notes: Sequence[str]) -> str:
    here = machine()
    return (
        f"{here['cores']} cores of {here['processor']}, {here['memory_gib']} GiB. Medians of the "
        "rounds, lowest to highest in brackets. CPU of the engine core is left out: it counts "
        "busy waiting. The raw engine's front end and client are one process. Rows with different "
        "numbers of events an answer do not compare: an event costs what it costs, however many "
        "tokens it has." + "".join(f" {note}." for note in notes)
    )


def _markdown(rows: list[list[str]], notes: Sequence[str]) -> Iterator[str]:
    yield _about(notes) + "\n"
    yield f"| {' | '.join(_HEAD)} |"
    yield "| --- " * len(_HEAD) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _row(rows: list[Sample]) -> list[str]:
    kinds = [kind for kind in rows[0].cpu_us_per_token if kind != "engine"]
    shares = (
        f"{kind} {_middle(row.cpu_us_per_token.get(kind, 0.0) for row in rows):.1f}"
        for kind in kinds
    )
    memory = (
        f"{kind} {_middle(row.memory_mib.get(kind, 0.0) for row in rows):.0f}"
        for kind in rows[0].memory_mib
    )
    return [
        rows[0].target,
        str(rows[0].concurrency),
        _range((row.tokens_per_second for row in rows), 0),
        _range((row.requests_per_second for row in rows), 1),
        _times(row.first_ms for row in rows),
        _times(row.gap_ms for row in rows),
        _times(row.token_ms for row in rows),
        f"{_middle(row.responses_per_request for row in rows):.1f}",
        _range((row.overhead for row in rows), 1) if kinds else "not seen",
        ", ".join(shares),
        f"{_middle(row.client_us_per_token for row in rows):.1f}",
        ", ".join(memory),
        _range((row.start_seconds for row in rows), 1),
    ]


def _times(found: Iterable[dict[str, float]]) -> str:
    times = list(found)
    return f"{_middle(t['p50'] for t in times):.1f} / {_middle(t['p99'] for t in times):.1f}"


def _range(values: Iterable[float], digits: int) -> str:
    found = list(values)
    middle = f"{statistics.median(found):,.{digits}f}"
    if len(found) == 1:
        return middle
    return f"{middle} ({min(found):,.{digits}f} to {max(found):,.{digits}f})"


def _middle(values: Iterable[float]) -> float:
    return statistics.median(values)
