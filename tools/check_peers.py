"""Warn of facts about other programs that nobody has looked at for long; it never fails.

python tools/check_peers.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Final

PEERS: Final = Path(__file__).resolve().parent.parent / "lmi_backend" / "migrate" / "peers.json"
_MOST_DAYS: Final = 60


def old(rows: list[dict[str, str]], today: date) -> Iterator[str]:
    """Yield a line for each row that was read too long ago."""
    for row in rows:
        days = (today - date.fromisoformat(row["read"])).days
        if days > _MOST_DAYS:
            yield f"{PEERS.name}: {row['name']} was read {days} days ago: {row['source']}"


def main() -> None:
    rows = json.loads(PEERS.read_text(encoding="utf-8"))["peers"]
    sys.stdout.writelines(f"warning: {line}\n" for line in old(rows, date.today()))


if __name__ == "__main__":
    main()
