"""What is counted of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import EngineStats


@dataclass(frozen=True)
class WorkerFigures:
    """Figures of a worker since the start of its model."""

    stats: EngineStats
    """What its engine last said; sums start anew when it is restarted."""
    taken: int
    """Answers it was asked for."""
    deaths: int
    is_ready: bool
