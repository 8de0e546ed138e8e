"""Write benchmarks/results.md: a row for each target of the newest run of each kind."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
_DATE: Final = len("2026-01-31")
_HEAD: Final = (
    "run",
    "target",
    "at once",
    "rounds",
    "tokens/s",
    "requests/s",
    "first response, ms",
    "gap p99, ms",
    "CPU outside the engine, µs a token",
    "CPU of the engine, µs a token",
)


def newest() -> dict[str, Path]:
    """Return the newest result of each kind of run; a file is named DATE-KIND.json."""
    return {path.stem[_DATE + 1 :]: path for path in sorted(RESULTS.glob("*.json"))}


def samples(kind: str, target: str, at_once: int) -> list[dict[str, Any]]:
    """Return the newest samples of a target, one a round."""
    read = json.loads(newest()[kind].read_text(encoding="utf-8"))["samples"]
    return _of(read, target, at_once)


def _of(read: list[dict[str, Any]], target: str, at_once: int) -> list[dict[str, Any]]:
    return [each for each in read if (each["target"], each["concurrency"]) == (target, at_once)]


def beside(sample: dict[str, Any]) -> float:
    """Return the CPU of all processes but the engine's and the client's, µs a token."""
    used: dict[str, float] = sample["cpu_us_per_token"]
    return sum(cpu for process, cpu in used.items() if process != "engine")


def results_page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Newest results\n"
    yield "*For people who compare servers: the newest run of each benchmark.*\n"
    yield "Each row is the median of the rounds of the newest `make bench` of its kind. Compare"
    yield "rows of one run only: runs are of several days and machines. The CPU of the engine"
    yield "includes busy waiting. [README.md](README.md) says how it is measured. All samples:"
    yield "`results/*.json`.\n"
    yield f"| {' | '.join(_HEAD)} |"
    yield "| --- " * len(_HEAD) + "|"
    for path in sorted(newest().values()):
        read = json.loads(path.read_text(encoding="utf-8"))
        for cells in _rows(read["samples"]):
            yield f"| {path.stem} | {' | '.join(cells)} |"
    yield ""
    for path in sorted(newest().values()):
        read = json.loads(path.read_text(encoding="utf-8"))
        machine = read["machine"]
        about = f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB"
        about += f", {machine['python']}" if "python" in machine else ""
        yield f"- {path.stem}: {'. '.join([about, *read.get('notes', ())])}."


def _rows(read: list[dict[str, Any]]) -> Iterator[list[str]]:
    keys = sorted({(each["concurrency"], each["target"]) for each in read})
    for at_once, target in keys:
        found = [
            each for each in read if (each["concurrency"], each["target"]) == (at_once, target)
        ]
        yield [
            target,
            f"{at_once:,}",
            str(len(found)),
            middle((each["tokens_per_second"] for each in found), 0),
            middle((each["requests_per_second"] for each in found), 1),
            middle((each["first_ms"]["p50"] for each in found), 0),
            middle((each["gap_ms"]["p99"] for each in found), 0),
            middle(map(beside, found), 1),
            middle((each["cpu_us_per_token"].get("engine", 0.0) for each in found), 1),
        ]


def middle(values: Iterable[float], digits: int) -> str:
    """Return the median of values as text."""
    return f"{statistics.median(values):,.{digits}f}"
