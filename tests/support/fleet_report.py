"""The measured parts of docs/fleet.md, from what routers and servers did."""

import os
from collections import Counter
from pathlib import Path

from tests.support.measured import replace_part, rows


class FleetReport:
    """Collects what was seen of each router."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        self.notes: list[str] = []
        self.prefixes: list[tuple[str, str, str]] = []
        """A router, and the share of prompt tokens found in caches without and with it."""

    def note(self, router: str, fault: str, seen: str) -> None:
        """Add a cell."""
        self.rows.setdefault(router, {})[fault] = seen

    def write(self, page: Path) -> None:
        """Write what was seen into the page."""
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
