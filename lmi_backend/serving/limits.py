"""How much a model takes at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import RequestError, UnavailableError
from lmi_backend.structures import DEFAULT_BOUNDS, StructureBounds, check_structures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.generation import GenerateRequest
    from lmi_backend.plan import EnginePlan


HELD_BYTES: Final = 2 << 30
"""Of all requests of a model that run or wait."""


@dataclass(frozen=True)
class Limits:
    """What is taken at once, and for how long."""

    running: int
    """Answers that all workers generate at once."""
    waiting: int
    """Answers that wait, here and in the engines' queues."""
    seconds: float
    """How long a request may run."""
    size: int = (1 << 32) - 1
    """Bytes of the largest request, as it is sent to a worker."""
    held_bytes: int = HELD_BYTES
    """Bytes of all requests that run or wait."""
    structures: StructureBounds = DEFAULT_BOUNDS
    """What a request may ask of the compiler of structured outputs."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """Tenant to the answers it starts in its turn, where it is not 1."""
    migration_timeout: float | None = 0.0
    """Seconds a request waits for a worker while none is ready; None to go by the last start."""
    migration_limit: int = 3
    """Times a request goes on elsewhere when its worker dies."""

    @property
    def capacity(self) -> int:
        """Answers that run or wait at once."""
        return self.running + self.waiting

    @classmethod
    def of(cls, plan: EnginePlan) -> Limits:
        """Return the limits of a plan."""
        return cls(
            running=plan.max_requests,
            waiting=plan.limits.queue_size,
            seconds=plan.limits.request_timeout,
            size=plan.limits.max_message_size,
            structures=plan.config.structure_bounds,
            weights=plan.limits.tenant_weights,
            migration_timeout=plan.limits.migration_timeout,
            migration_limit=plan.limits.migration_limit,
        )

    def check_structures(self, requests: tuple[GenerateRequest, ...]) -> None:
        """Raise RequestError for a grammar that takes too long to compile.

        A body that the engine reads itself is checked in the worker.
        """
        seen: list[object] = []
        for request in requests:
            structures = request.sampling.extra.get("structured_outputs")
            # The prompts of one body share it.
            if isinstance(structures, dict) and structures not in seen[-1:]:
                check_structures(structures, self.structures)
                seen = [structures]

    def check_size(self, size: int, held: int = 0) -> None:
        """Refuse a request that is too large.

        Args:
            held: bytes of all others that run or wait.

        Raises:
            RequestError: it always would be.
            UnavailableError: it is now.
        """
        if size > self.size:
            accepted = f"at most {self.size} (option.max_output_size)"
            raise RequestError(f"has {size} bytes", field="the request", accepted=accepted)
        if held and held + size > self.held_bytes:
            raise UnavailableError(
                f"the requests that run or wait have {held} bytes, and this one has {size}; "
                f"accepted: at most {self.held_bytes} in all"
            )

    def check(self, in_use: int, width: int, unwanted: int = 0) -> None:
        """Refuse `width` more answers where they exceed the capacity.

        Args:
            unwanted: how much of the capacity is that of workers that are not wanted now.

        Raises:
            RequestError: they always would.
            UnavailableError: they would now.
        """
        if width > self.capacity:
            problem = f"asks for {width} answers at once"
            raise RequestError(problem, field="the request", accepted=f"at most {self.capacity}")
        if in_use + width > self.capacity - unwanted:
            raise UnavailableError(
                f"the queue is full: {self.running - unwanted} requests run "
                f"(option.max_rolling_batch_size) and {self.waiting} wait (job_queue_size)"
            )
