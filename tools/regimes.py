"""The tables of benchmarks/README.md: one for each regime, from its newest run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from results_page import RESULTS, beside, middle, newest, results_page

PAGE: Final = RESULTS.parent / "README.md"
_BEGIN: Final = "<!-- Made by `make docs` from benchmarks/results/. -->\n"
_END: Final = "<!-- The end of what is made. -->\n"
_HEAD: Final = (
    "target",
    "at once",
    "CPU outside the engine, µs a token",
    "of it, by process",
    "first event, ms",
    "gap p99, ms",
    "events an answer",
    "tokens/s",
)
_OURS: Final = "lmi-backend"
_ENGINE: Final = "engine"
_WORDS: Final = {"worker front end": "worker", "server front end": "server"}


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


def result_pages(note: str) -> dict[Path, str]:
    """Return the pages of what was measured.

    Args:
        note: what a page begins with that is made as a whole.
    """
    results = "\n".join([note, *results_page()]) + "\n"
    return {PAGE: _regimes_page(), RESULTS.with_suffix(".md"): results}


def _regimes_page() -> str:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return "".join((before, _BEGIN, "\n", *(f"{line}\n" for line in tables()), "\n", _END, after))


def tables() -> Iterator[str]:
    """Yield the lines of the tables."""
    runs, drawn = newest(), set[str]()
    for number, regime in enumerate(REGIMES):
        path = runs[regime.kind]
        read = json.loads(path.read_text(encoding="utf-8"))
        yield from ([""] if number else [])
        yield f"### {regime.title}\n"
        yield f"Run {path.stem}: {_about(read)}.\n"
        yield f"| {' | '.join(_HEAD)} |"
        yield "| --- " * len(_HEAD) + "|"
        for cells in _rows([each for each in read["samples"] if regime.shows(each)]):
            yield f"| {' | '.join(cells)} |"
        picture = path.with_name(f"{path.stem}-cpu-per-token.png")
        if picture.is_file() and regime.kind not in drawn:
            drawn.add(regime.kind)
            yield f"\n![CPU by process]({picture.relative_to(PAGE.parent)})"


def _about(read: dict[str, Any]) -> str:
    machine = read["machine"]
    rounds = max(
        sum((each["target"], each["concurrency"]) == key for each in read["samples"])
        for key in {(each["target"], each["concurrency"]) for each in read["samples"]}
    )
    times = "one round" if rounds == 1 else f"medians of {rounds} rounds"
    return f"{times}, {machine['cores']} cores of {machine['processor']}"


def _rows(samples: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the rows: for each number of requests what costs least first."""
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for each in samples:
        groups.setdefault((each["concurrency"], each["target"]), []).append(each)
    order = sorted(
        groups, key=lambda key: (key[0], statistics.median(map(beside, groups[key])), key[1])
    )
    for at_once, target in order:
        found = groups[at_once, target]
        yield [
            f"**{target}**" if target.startswith(_OURS) else target,
            f"{at_once:,}",
            middle(map(beside, found), 1),
            _by_process(found),
            middle((each["first_ms"]["p50"] for each in found), 0),
            middle((each["gap_ms"]["p99"] for each in found), 0),
            middle((each["responses_per_request"] for each in found), 1),
            middle((each["tokens_per_second"] for each in found), 0),
        ]


def _by_process(found: list[dict[str, Any]]) -> str:
    """Return the shares of processes that take a microsecond or more."""
    kinds = (kind for kind in found[0]["cpu_us_per_token"] if kind != _ENGINE)
    shares = {
        kind: statistics.median(each["cpu_us_per_token"].get(kind, 0.0) for each in found)
        for kind in kinds
    }
    shown = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{_WORDS.get(kind, kind)} {share:.0f}" for kind, share in shown if share >= 1)
