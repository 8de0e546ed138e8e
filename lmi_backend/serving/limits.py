"""How much a model takes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import RequestError, UnavailableError
from lmi_backend.shares import FREE_BYTES

if TYPE_CHECKING:
    from lmi_backend.engine_config import RequestLimits
    from lmi_backend.plan import EnginePlan
    from lmi_backend.shares import Shares


OPEN_BYTES: Final = 2 << 30
"""Of all requests of a model that run or wait."""


@dataclass(frozen=True)
class Limits:
    running: int
    """Answers that all workers generate at once."""
    requests: RequestLimits
    """The plan's own."""
    open_bytes: int = OPEN_BYTES
    """Bytes of all requests that run or wait."""

    @property
    def capacity(self) -> int:
        return self.running + self.requests.queue_size

    @classmethod
    def of(cls, plan: EnginePlan) -> Limits:
        return cls(plan.max_requests, plan.limits)

    def check_size(self, size: int, others: Shares[int], tenant: str) -> None:
        """Refuse a request that is too large next to all that run or wait.

        Raises:
            RequestError: it always would be.
            UnavailableError: it is now.
        """
        if size > (most := self.requests.max_message_size):
            accepted = f"at most {most} (option.max_output_size)"
            raise RequestError(f"has {size} bytes", field="the request", accepted=accepted)
        is_large, more = size > FREE_BYTES, size - FREE_BYTES
        if is_large and others.size and not others.has_room(more, self.open_bytes, tenant):
            raise UnavailableError(
                f"the requests that run or wait have {others.size} bytes, and this one has {size}; "
                f"accepted: a tenant's share of {self.open_bytes} for all"
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
            problem = f"requests {width} answers at once"
            raise RequestError(problem, field="the request", accepted=f"at most {self.capacity}")
        if in_use + width > self.capacity - unwanted:
            raise UnavailableError(
                f"the queue is full: {self.running - unwanted} requests run "
                "(option.max_rolling_batch_size) and "
                f"{self.requests.queue_size} wait (job_queue_size)"
            )
