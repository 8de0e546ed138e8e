"""The measured tables of tests/chaos/results.md, from what the chaos suite saw."""

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.measured import replace_part, rows


@dataclass(frozen=True)
class Row:
    """A fault under streams."""

    fault: str
    outcomes: Counter[str]
    last_seconds: float
    back_seconds: float
    message: str


class Report:
    """Collects what was seen."""

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
        """Write what was seen into the page."""
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
