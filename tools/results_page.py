"""The tables of benchmarks/README.md, of the newest run of each kind."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from page_parts import ROOT, table

RESULTS: Final = ROOT / "benchmarks" / "results"
_DATE: Final = len("2026-01-31")
_OURS: Final = "lmi-backend"
_ENGINE: Final = "engine"
_SHORT_NAMES: Final = {"worker front end": "worker", "server front end": "server"}


@dataclass(frozen=True)
class Regime:
    """What a table shows.

    Args:
        kind: of the runs; the newest counts.
        at_once: numbers of requests at once.
        among: what a target's name must have one of; none for all targets.
    """

    title: str
    kind: str
    at_once: tuple[int, ...]
    among: tuple[str, ...] = ()

    def shows(self, sample: dict[str, Any]) -> bool:
        """Tell whether a sample is in the table."""
        is_there = not self.among or any(word == sample["target"] for word in self.among)
        return is_there and sample["concurrency"] in self.at_once


_EACH: Final = "lmi-backend, chat, each token"
_LMI: Final = "lmi-backend, LMI, each token"
_PEERS: Final = ("vLLM's server", "vLLM's Rust front end")
_EIGHT: Final = ("lmi-backend, chat, 8 tokens", *(f"{peer}, 8 tokens" for peer in _PEERS))
REGIMES: Final = (
    Regime("Many chats, each token an event", "chats", (64, 256), (_EACH, _LMI, *_PEERS)),
    Regime("256 chats, 8 tokens an event", "chats", (256,), _EIGHT),
    Regime("256 chats, with NVIDIA's Dynamo", "dynamo", (256,)),
    Regime("Chats with tools", "tools", (64, 256)),
    Regime("256 chats of 512 tokens", "long", (256,)),
    Regime("One chat alone", "alone", (1,)),
    Regime("1,024 chats", "many", (1024,)),
    Regime(
        "The raw engine, and whole answers",
        "whole",
        (64, 256),
        ("raw engine", _EACH, "vLLM's server", "lmi-backend, whole answers"),
    ),
    Regime("Other clients, and Triton's own ports", "paced", (256,)),
    Regime("An engine that wants the cores of its server", "unpaced", (1, 64)),
    Regime("Answers of one token", "one-token", (64,)),
    Regime("Embeddings of 64 tokens", "embeddings", (64,)),
)
"""In the order of the page."""


def newest() -> dict[str, Path]:
    """Return the newest result of each kind of run; a file is named DATE-KIND.json."""
    return {path.stem[_DATE + 1 :]: path for path in sorted(RESULTS.glob("*.json"))}


def samples(kind: str, target: str, at_once: int) -> list[dict[str, Any]]:
    """Return the newest samples of a target, one a round."""
    return _groups(_read(newest()[kind])["samples"]).get((at_once, target), [])


def _read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def _groups(read: list[dict[str, Any]]) -> dict[tuple[int, str], list[dict[str, Any]]]:
    """Return samples by number of requests at once and target, in this order."""
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for each in sorted(read, key=lambda each: (each["concurrency"], each["target"])):
        groups.setdefault((each["concurrency"], each["target"]), []).append(each)
    return groups


def beside(sample: dict[str, Any]) -> float:
    """Return the CPU of all processes but the engine's and the client's, µs a token."""
    used: dict[str, float] = sample["cpu_us_per_token"]
    return sum(cpu for process, cpu in used.items() if process != _ENGINE)


def _middle(values: Iterable[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f}"


def regimes() -> Iterator[str]:
    """Yield the lines of the tables of README.md."""
    runs, drawn = newest(), set[str]()
    heads = ["target", "at once", "CPU outside the engine, µs a token", "of it, by process"]
    heads += ["first event, ms", "gap p99, ms", "events an answer", "tokens/s"]
    for number, regime in enumerate(REGIMES):
        path = runs[regime.kind]
        read = _read(path)
        machine, groups = read["machine"], _groups(read["samples"])
        rounds = max(map(len, groups.values()))
        times = "one round" if rounds == 1 else f"medians of {rounds} rounds"
        yield from ([""] if number else [])
        yield f"### {regime.title}\n"
        yield f"Run {path.stem}: {times}, {machine['cores']} cores of {machine['processor']}.\n"
        yield from table(heads, rows_of([each for each in read["samples"] if regime.shows(each)]))
        picture = path.with_name(f"{path.stem}-cpu-per-token.png")
        if picture.is_file() and regime.kind not in drawn:
            drawn.add(regime.kind)
            yield f"\n![CPU by process](results/{picture.name})"


def rows_of(read: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the rows: for each number of requests what costs least first."""
    groups = _groups(read)
    costs = {key: statistics.median(map(beside, found)) for key, found in groups.items()}
    for at_once, target in sorted(groups, key=lambda key: (key[0], costs[key], key[1])):
        found = groups[at_once, target]
        yield [
            f"**{target}**" if target.startswith(_OURS) else target,
            f"{at_once:,}",
            _middle(map(beside, found), 1),
            _by_process(found),
            _middle((each["first_ms"]["p50"] for each in found), 0),
            _middle((each["gap_ms"]["p99"] for each in found), 0),
            _middle((each["responses_per_request"] for each in found), 1),
            _middle((each["tokens_per_second"] for each in found), 0),
        ]


def _by_process(found: list[dict[str, Any]]) -> str:
    """Return the shares of processes that take a microsecond or more."""
    kinds = (kind for kind in found[0]["cpu_us_per_token"] if kind != _ENGINE)
    shares = {
        kind: statistics.median(each["cpu_us_per_token"].get(kind, 0.0) for each in found)
        for kind in kinds
    }
    shown = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(
        f"{_SHORT_NAMES.get(kind, kind)} {share:.0f}" for kind, share in shown if share >= 1
    )
