"""What a service has counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.engines.protocol import EngineStats


@dataclass(frozen=True)
class Snapshot:
    """Figures of a service since its start."""

    open: int
    ended: dict[str, int]
    """Requests by how they ended: a finish reason, or an error's code in lower case."""
    responses: int
    prompt_tokens: int
    generation_tokens: int
    workers: list[EngineStats]
    taken: list[int]
    restarts: list[int]
