"""The parts of pages that a run of tests measures, each between its two marks."""

import os
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


def replace_part(page: Path, name: str, lines: Iterable[str]) -> None:
    text = page.read_text(encoding="utf-8")
    part = rf"^(<!-- measured: {name} -->\n).*?^(<!-- end -->)$"
    found = re.search(part, text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no part {name}"
    made = "".join(f"{line}\n" for line in lines)
    page.write_text(text[: found.end(1)] + f"\n{made}\n" + text[found.start(2) :], "utf-8")


def rows(*heads: str, of: Iterable[Iterable[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ("---",) * len(heads), *of)]


@dataclass(frozen=True)
class Row:
    """A fault under streams."""

    fault: str
    outcomes: Counter[str]
    last_seconds: float
    back_seconds: float
    message: str


class Report:
    """What the chaos suite saw, for tests/chaos/results.md."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.notes: list[tuple[str, str]] = []
        self.front_notes: list[tuple[str, str]] = []
        self.began = time.monotonic()

    def note(self, fault: str, seen: str) -> None:
        """Add a fault without streams to lose."""
        self.notes.append((fault, seen))

    def note_front(self, fault: str, seen: str) -> None:
        """Add what was done to the front end, or to its clients."""
        self.front_notes.append((fault, seen))

    def write(self, page: Path) -> None:
        streams = []
        for row in self.rows:
            counts = (str(row.outcomes[each]) for each in ("whole", "error", "cut"))
            times = (f"{each:.1f}" for each in (row.last_seconds, row.back_seconds))
            streams.append((row.fault, *counts, *times, row.message))
        heads = ("fault", "complete", "error", "cut", "last one, s", "answers again, s")
        cores = len(os.sched_getaffinity(0))
        about = f"Times are of one run, on {cores} shared cores with a tiny model."
        table = rows(*heads, "the clients were told", of=streams)
        replace_part(page, "faults", [about, "", *table])
        for name, notes in (
            ("without-streams", self.notes),
            ("of-the-front-end", self.front_notes),
        ):
            replace_part(page, f"faults-{name}", rows("fault", "what was seen", of=notes))


class FleetReport:
    """What was seen of each router, for docs/fleet.md."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        self.notes: list[str] = []
        self.prefixes: list[tuple[str, str, str]] = []
        """A router, and the share of prompt tokens found in caches without and with it."""

    def note(self, router: str, fault: str, seen: str) -> None:
        self.rows.setdefault(router, {})[fault] = seen

    def write(self, page: Path) -> None:
        faults = list(dict.fromkeys(name for row in self.rows.values() for name in row))
        cells = (
            (router, *(row.get(fault, "not run") for fault in faults))
            for router, row in self.rows.items()
        )
        about = f"Everything shares {len(os.sched_getaffinity(0))} cores."
        replace_part(page, "routers", [about, "", *rows("router", *faults, of=cells)])
        replace_part(page, "router-notes", [f"- {line}" for line in self.notes])
        if self.prefixes:
            heads = ("router", "not sticky", "sticky by session")
            replace_part(page, "prefixes", rows(*heads, of=self.prefixes))


def lost(failures: Counter[str], asked: int) -> str:
    """Say how many of all were lost, and of what."""
    count = sum(failures.values())
    why = ", ".join(sorted({text.partition(": ")[0] for text in failures}))
    return f"{count} of {asked}" + (f" ({why})" if count else "")
