"""Decide which request starts next, so that tenants get equal shares where more wait than may run.

An engine serves its queue in the order of arrival, so that queue is kept short: other requests wait
here, by tenant. The tenant that has got the fewest tokens is next, by its weight. Tokens of prompts
count, and those that were generated. This is the virtual token counter of Sheng et al. (Fairness in
Serving Large Language Models, 2024). Guarded by the service's lock.
"""

from __future__ import annotations

import bisect
import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import RequestError, UnavailableError
from lmi_backend.shares import FREE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.engine_config import RequestLimits
    from lmi_backend.plan import EnginePlan
    from lmi_backend.serving.request_state import RequestState
    from lmi_backend.shares import Shares

OPEN_BYTES: Final = 2 << 30
"""Of all requests of a model that run or wait."""
_LONGEST_NAME: Final = 64
# From the end of an answer until the next request reaches the engine takes a few milliseconds, in
# which a step may begin: the engine gets a queue of its own for that long.
_AHEAD_SECONDS: Final = 0.05
_AHEAD_SHARE: Final = 1 / 8
_RATE_SECONDS: Final = 1.0
_TOKEN_BYTES: Final = 4
"""Of a prompt, until the engine says how many tokens it has."""
_CACHED: Final = 0.1
"""What a token of a prompt counts that the engine had in its cache."""
_NEWEST: Final = 0.05
"""What the newest value counts in a mean."""
_INACTIVE_TENANTS: Final = 1024
"""Tenants without requests whose tokens are remembered."""
DISPLACED: Final = (
    "made way for another tenant's request, which found {bound}; "
    "the tenant it is of has the most waiting"
)
"""Why a request failed that another tenant's displaced."""


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


def tenant_key(name: str) -> str:
    """Return the key of a tenant: its name, or the digest of a long name."""
    if len(name) <= _LONGEST_NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def _rank(state: RequestState) -> tuple[int, float, int, RequestState]:
    return state.priority, state.latest, state.arrival, state


class _Tenant:
    def __init__(self, weight: int, served: float) -> None:
        self.weight, self.served = weight, served
        self.waiting = 0
        """Answers of the requests that wait."""
        self.queue: list[tuple[int, float, int, RequestState]] = []
        """By priority, then by when they must start, then by arrival."""
        self.running: dict[RequestState, None] = {}

    def charge(self, state: RequestState) -> None:
        tokens = (state.prompt_tokens or state.size / _TOKEN_BYTES) + state.num_tokens
        self.served += (tokens - state.charged) / self.weight
        state.charged = tokens


class Admission:
    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        weights = limits.requests.tenant_weights
        self._weights = {tenant_key(name): weight for name, weight in weights.items()}
        self.tenants: dict[str, _Tenant] = {}
        self._most_tenants = 2 * _INACTIVE_TENANTS
        self.queued: dict[str, _Tenant] = {}
        """Those that have requests waiting, in the order in which they came."""
        self._served = 0.0
        """Tokens of the tenant that was served last, by its weight: who comes has at least these,
        and so cannot save up turns."""
        self.running = 0
        """Answers that were sent to workers."""
        self.waiting = 0
        """Answers of the requests that wait here."""
        self._answer_tokens = 0.0
        """Of a request, in the mean of the last ones."""
        self._rate = 0.0
        self._num_done, self._since = 0, clock()

    def displaced_by(self, state: RequestState, unwanted: int = 0) -> dict[RequestState, str]:
        """Return the queued requests that must fail so that this one can wait, and why each must.

        If there is no room, a tenant with less in the queue, by weight, displaces the latest
        requests of the tenant with the most.

        Args:
            unwanted: answers of the limits for which there would be workers if more ran.

        Raises:
            RequestError: the request needs more than there ever is.
            UnavailableError: there is no room.
        """
        limits, in_use = self._limits, self.running + self.waiting
        try:
            limits.check(in_use, state.width, unwanted)
        except UnavailableError:
            displaced = self._displaced(state, in_use + state.width - limits.capacity + unwanted)
            if not displaced:
                raise
            return dict.fromkeys(
                displaced, DISPLACED.format(bound="the queue full (job_queue_size)")
            )
        return {}

    def _displaced(self, state: RequestState, missing: int) -> list[RequestState]:
        """Return the requests of the tenant that has most waiting, without which one has room."""
        own = self.tenants.get(state.tenant) or self._new_tenant(state.tenant)
        tenants = self.queued.values()
        most = max(tenants, key=lambda each: each.waiting / each.weight, default=own)
        left = (most.waiting - state.width) / most.weight
        if left < (own.waiting + state.width) / own.weight:
            return []
        displaced: list[RequestState] = []
        for *_, queued in reversed(most.queue):
            if missing <= 0:
                break
            displaced.append(queued)
            missing -= queued.width
        return displaced

    def is_free(self, capacity: int) -> bool:
        """Tell whether a request starts at once; without a ready worker it does, and is refused."""
        return not capacity or (not self.waiting and self.running < self._most(capacity))

    def enqueue(self, state: RequestState) -> None:
        tenant = self.queued[state.tenant] = self._tenant(state.tenant)
        bisect.insort(tenant.queue, _rank(state))
        state.is_queued = True
        tenant.waiting += state.width
        self.waiting += state.width

    def order(self, new: RequestState) -> list[RequestState]:
        """Return the requests that wait, and one more, in the order in which they are to start."""
        order = []
        own = self.tenants.get(new.tenant) or self._new_tenant(new.tenant)
        for tenant in {*self.queued.values(), own}:
            served = tenant.served if tenant.queue else max(tenant.served, self._served)
            queue = [*tenant.queue]
            if tenant is own:
                bisect.insort(queue, _rank(new))
            for *_, state in queue:
                order.append((served, state.arrival, state))
                served += (state.size / _TOKEN_BYTES + self._answer_tokens) / tenant.weight
        return [state for *_, state in sorted(order)]

    def has_less(self, state: RequestState, other: RequestState) -> bool:
        """Tell whether a tenant with a request more has less waiting than another with one less."""
        own = self.tenants.get(state.tenant) or self._new_tenant(state.tenant)
        most = self.tenants[other.tenant]
        less = (most.waiting - other.width) / most.weight
        return (own.waiting + state.width) / own.weight <= less

    def next(self, capacity: int) -> RequestState | None:
        """Return the request that starts now and leaves the queue; None where there is no capacity.

        A request for several answers starts when there is capacity for one: waiting for all of
        them would leave the engine idle.
        """
        if not self.queued or (capacity and self.running >= self._most(capacity)):
            return None
        tenants = self.queued.values()
        if len(tenants) > 1:
            for tenant in tenants:
                for state in tenant.running:
                    tenant.charge(state)
        tenant = min(tenants, key=lambda each: each.served)
        state = tenant.queue[0][-1]
        self._served = max(self._served, tenant.served)
        self.withdraw(state)
        return state

    def withdraw(self, state: RequestState) -> None:
        """Take a request out of the queue; nothing happens to one that is not in it."""
        if not state.is_queued:
            return
        state.is_queued = False
        tenant = self.queued[state.tenant]
        del tenant.queue[bisect.bisect_left(tenant.queue, _rank(state))]
        tenant.waiting -= state.width
        self.waiting -= state.width
        if not tenant.queue:
            del self.queued[state.tenant]

    def started(self, state: RequestState) -> None:
        self.running += state.width
        tenant = self._tenant(state.tenant)
        if not tenant.queue:
            # It may not have waited.
            self._served = tenant.served
        tenant.running[state] = None

    def begun(self, state: RequestState, prompt_tokens: int, cached_tokens: int) -> None:
        """Note how many tokens the engine found the prompts of a request to have."""
        state.prompt_tokens = prompt_tokens - (1 - _CACHED) * cached_tokens

    def ended(self, state: RequestState) -> None:
        if not state.prompt_tokens:
            self.begun(state, state.num_prompt_tokens, 0)
        self.left(state)
        if state.error is None:
            # Those that a client cancels end in a moment, and tell nothing of the others.
            self._num_done += state.width
            self._answer_tokens += (state.num_tokens - self._answer_tokens) * _NEWEST
        seconds = self._clock() - self._since
        if seconds >= _RATE_SECONDS:
            self._rate = self._num_done / seconds
            self._num_done, self._since = 0, self._since + seconds

    def left(self, state: RequestState) -> None:
        """Note that a request that was started has lost its worker."""
        self.running -= state.width
        tenant = self.tenants[state.tenant]
        del tenant.running[state]
        tenant.charge(state)

    def _most(self, capacity: int) -> int:
        """Return how many answers the workers get at once: a few more than they run."""
        ahead = max(1, int(capacity * _AHEAD_SHARE), int(self._rate * _AHEAD_SECONDS))
        return capacity + min(ahead, capacity)

    def _tenant(self, name: str) -> _Tenant:
        tenant = self.tenants.get(name)
        if tenant is None:
            if len(self.tenants) >= self._most_tenants:
                self._forget_inactive()
            tenant = self.tenants[name] = self._new_tenant(name)
        elif not tenant.queue and tenant.served < self._served:
            tenant.served = self._served
        return tenant

    def _new_tenant(self, name: str) -> _Tenant:
        return _Tenant(self._weights.get(name, 1), self._served)

    def _forget_inactive(self) -> None:
        """Forget the tenants without requests, but for some that have got the most."""
        inactive = [name for name, each in self.tenants.items() if not (each.queue or each.running)]
        inactive.sort(key=lambda name: self.tenants[name].served)
        for name in inactive[: max(0, len(inactive) - _INACTIVE_TENANTS)]:
            del self.tenants[name]
        self._most_tenants = 2 * (len(self.tenants) + _INACTIVE_TENANTS)
