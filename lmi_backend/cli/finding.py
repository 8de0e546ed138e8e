"""What the doctor finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    status: Literal["ok", "warning", "error"]
    """An error keeps models from being served; a warning may, or costs something."""
    found: str
    advice: str = ""
    """What to do; empty if nothing."""
