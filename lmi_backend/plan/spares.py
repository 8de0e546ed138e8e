"""Which workers have a spare, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.options.table import common as opt
from lmi_backend.plan.ports import EVENTS, TRANSFERS
from lmi_backend.units import human_bytes

if TYPE_CHECKING:
    from collections.abc import Collection

    from lmi_backend.options import LmiOptions
    from lmi_backend.plan.engine_plan import Explanation, Launch, Parallel
    from lmi_backend.sizing.memory import MemoryEstimate

_SPARE: Final = "spare, which replaces a worker that dies; of vLLM it takes about 1 GiB of memory"
_LOADED: Final = ", and {} more for the model, if these are left"
_NO_SPARE: Final = "no worker of several machines, and none with code of the user's, has a spare"


@dataclass(frozen=True)
class SpareFacts:
    """What decides whether workers have spares, and whether these load the model."""

    memory: MemoryEstimate | None
    """Of a rank; None if nobody knows."""
    copies: int
    """Of the model in one worker."""
    passed: Collection[str]
    """Names of the engine's further arguments."""
    has_code: bool
    """Whether code of the user's stands before the engine."""

    def loaded_bytes(self, parallel: Parallel) -> int:
        """Return what a spare takes for its model; 0 where it loads none before it is needed.

        It loads none where that would take a device or a port of the worker's, and where nobody
        knows how much it is.
        """
        has_ports = self.copies > 1 or any(name in self.passed for name in (EVENTS, *TRANSFERS))
        if self.memory is None or has_ports or any(parallel.device_groups):
            return 0
        return (self.memory.weights + max(self.memory.kv_cache, 0)) * parallel.world_size


def with_spares(
    launch: Launch,
    options: LmiOptions,
    parallel: Parallel,
    facts: SpareFacts,
    report: Explanation,
) -> Launch:
    """Add how many workers have a spare, and what it takes if it loads the model."""
    asked = options[opt.SPARE_WORKERS]
    if parallel.hosts or parallel.nodes > 1 or facts.has_code:
        if asked not in ("auto", 0):
            report.notes.append(f"{opt.SPARE_WORKERS.name}={asked}: {_NO_SPARE}")
        return launch
    if asked == "auto":
        prepares = options.choice.spec.implementation.prepares and parallel.mode == "python"
        number = int(prepares and parallel.workers == 1)
    else:
        number = min(int(asked), parallel.workers)
    if not number:
        return launch
    loaded = facts.loaded_bytes(parallel)
    more = _LOADED.format(human_bytes(loaded)) if loaded else ""
    report.reasons.append(f"{number} {_SPARE}{more} ({opt.SPARE_WORKERS.name})")
    return replace(launch, spare_workers=number, spare_bytes=loaded)
