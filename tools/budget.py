"""Count the lines of each room, and fail above its budget.

    python tools/budget.py                   what is over its budget
    python tools/budget.py --since COMMIT    the table, with what was added to which room since then

A budget falls with each step that deletes. A commit that raises one says what it adds, and what it
takes away.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BUDGETS: Final = {
    "lmi_backend": 2_545,
    "lmi_backend/cli": 3_575,
    "lmi_backend/clients": 5_210,
    "lmi_backend/deploy": 620,
    "lmi_backend/endpoint": 1_600,
    "lmi_backend/engines": 3_755,
    "lmi_backend/engines/vllm": 6_775,
    "lmi_backend/fetch": 525,
    "lmi_backend/frontend": 5_965,
    "lmi_backend/ipc": 1_565,
    "lmi_backend/migrate": 2_690,
    "lmi_backend/options": 4_815,
    "lmi_backend/plan": 3_880,
    "lmi_backend/pool": 2_595,
    "lmi_backend/repository": 1_025,
    "lmi_backend/resume": 405,
    "lmi_backend/serving": 3_325,
    "lmi_backend/sizing": 3_190,
    "lmi_backend/supervisor": 2_745,
    "lmi_backend/triton": 1_385,
    "lmi_backend/worker": 2_970,
    "tests": 68_710,
    "tools": 7_035,
}
"""Lines of Python of each folder; of what is in none of the deeper ones."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--since", metavar="COMMIT", help="show what was added since this commit")
    since = parser.parse_args(words).since
    lines = count(ROOT)
    if since:
        added = changes(since)
        for room, budget in BUDGETS.items():
            change = f"{added[room]:+6,}" if added[room] else ""
            sys.stdout.write(f"{room:<26}{lines[room]:>8,} of {budget:>7,}  {change}\n")
    over = list(violations(lines))
    sys.stdout.write("".join(f"{line}\n" for line in over))
    if not over:
        sys.stdout.write(f"budgets: {len(BUDGETS)} rooms, {sum(lines.values()):,} lines\n")
    return 1 if over else 0


def count(root: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for top in sorted({room.partition("/")[0] for room in BUDGETS}):
        for path in (root / top).rglob("*.py"):
            found[room_of(path.relative_to(root))] += len(path.read_bytes().splitlines())
    return found


def room_of(path: PurePosixPath | Path) -> str:
    return next(str(each) for each in path.parents if str(each) in BUDGETS)


def changes(since: str) -> Counter[str]:
    """Return the lines that each room has more than at a commit."""
    command = ["git", "diff", "--numstat", "--no-renames", since, "--", "*.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return summed(done.stdout.splitlines())


def summed(lines: Iterable[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in lines:
        added, removed, name = line.split("\t")
        path = PurePosixPath(name)
        if any(str(each) in BUDGETS for each in path.parents):
            found[room_of(path)] += int(added) - int(removed)
    return found


def violations(lines: Counter[str]) -> Iterator[str]:
    for room, budget in BUDGETS.items():
        if lines[room] > budget:
            yield f"{room}: {lines[room] - budget:,} lines over its budget (tools/budget.py)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
