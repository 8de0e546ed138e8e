"""What a service has counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lmi_backend.serving.histogram import Histogram
    from lmi_backend.workers.figures import WorkerFigures


@dataclass(frozen=True)
class Snapshot:
    """Figures of a service since its start."""

    open: int
    waiting: int
    """Answers of the requests that no worker was asked for yet."""
    ended: dict[str, int]
    """Requests by how they ended: a finish reason, or an error's code in lower case."""
    responses: int
    prompt_tokens: int
    generation_tokens: int
    first_seconds: Histogram
    """From a request to its first response."""
    token_seconds: Histogram
    """From one token of a stream to the next; tokens that share a response share its time."""
    request_seconds: Histogram
    """From a request to its last response."""
    workers: list[WorkerFigures]
