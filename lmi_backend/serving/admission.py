"""Decide which request starts next, so that callers take turns where more wait than may run.

An engine serves its queue in the order of arrival, so that queue is kept short: other requests wait
here, by tenant, and tenants take turns (deficit round robin, Shreedhar and Varghese 1995). In a
turn a tenant starts as many answers as its weight says; a request for more answers than that saves
up several turns. Guarded by the service's lock.
"""

from __future__ import annotations

import bisect
import hashlib
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import UnavailableError

if TYPE_CHECKING:
    from lmi_backend.serving.limits import Limits
    from lmi_backend.serving.request_state import RequestState

_LONGEST_NAME: Final = 64
# From the end of an answer until the next request reaches the engine takes a few milliseconds, in
# which a step may begin: the engine gets a queue of its own for that long.
_AHEAD_SECONDS: Final = 0.05
_AHEAD_SHARE: Final = 1 / 8
_RATE_SECONDS: Final = 1.0
DISPLACED: Final = (
    "made way for another tenant's request, which found the queue full (job_queue_size); "
    "the tenant it is of has the most requests waiting"
)
"""Why a request failed that another tenant's displaced."""


def tenant_key(name: str) -> str:
    """Return the key of a tenant: its name, or the digest of a long name."""
    if len(name) <= _LONGEST_NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


class _Tenant:
    """A tenant that has requests waiting."""

    __slots__ = ("credit", "queue", "waiting", "weight")

    def __init__(self, weight: int) -> None:
        self.weight = self.credit = weight
        self.waiting = 0
        self.queue: list[tuple[int, int, RequestState]] = []
        """By priority, then by arrival."""


class Admission:
    """Which requests wait, and how many answers run."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        weights = limits.requests.tenant_weights
        self._weights = {tenant_key(name): weight for name, weight in weights.items()}
        # In the order of their turns. A tenant that has nothing waiting is forgotten.
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self.running = 0
        """Answers that were sent to workers."""
        self.waiting = 0
        """Answers of the requests that wait here."""
        self._rate = 0.0
        self._num_done, self._since = 0, time.monotonic()

    def displaced_by(self, state: RequestState, unwanted: int = 0) -> list[RequestState]:
        """Return the queued requests that must fail so that this one can wait, if any must.

        If the queue is full, a tenant with fewer queued requests, by weight, displaces the latest
        requests of the tenant with the most.

        Args:
            unwanted: answers of the limits for which there would be workers if more ran.

        Raises:
            RequestError: the request needs more than the capacity.
            UnavailableError: the queue is full.
        """
        try:
            self._limits.check(self.running + self.waiting, state.width, unwanted)
        except UnavailableError:
            displaced = self._displaced(state, self._limits.capacity - unwanted)
            if not displaced:
                raise
            return displaced
        return []

    def _displaced(self, state: RequestState, capacity: int) -> list[RequestState]:
        own = self._tenants.get(state.tenant) or self._new_tenant(state.tenant)
        most = max(self._tenants.values(), key=lambda it: it.waiting / it.weight, default=own)
        left = (most.waiting - state.width) / most.weight
        if most is own or left < (own.waiting + state.width) / own.weight:
            return []
        displaced: list[RequestState] = []
        missing = self.running + self.waiting + state.width - capacity
        for _, _, queued in reversed(most.queue):
            if missing <= 0:
                break
            displaced.append(queued)
            missing -= queued.width
        return displaced

    def is_free(self, capacity: int) -> bool:
        """Tell whether a request starts at once; without a ready worker it does, and is refused.

        Args:
            capacity: answers that all workers that are ready generate at once.
        """
        return not capacity or (not self.waiting and self.running < self._most(capacity))

    def enqueue(self, state: RequestState) -> None:
        """Let a request wait for its turn."""
        tenant = self._tenants.get(state.tenant)
        if tenant is None:
            tenant = self._tenants[state.tenant] = self._new_tenant(state.tenant)
        bisect.insort(tenant.queue, (state.priority, state.arrival, state))
        state.is_queued = True
        tenant.waiting += state.width
        self.waiting += state.width

    def next(self, capacity: int) -> RequestState | None:
        """Return the request that starts now and leaves the queue; None where there is no capacity.

        A request for several answers starts when there is capacity for one: waiting for all of
        them would leave the engine idle.
        """
        if not self._tenants or (capacity and self.running >= self._most(capacity)):
            return None
        while True:
            name, tenant = next(iter(self._tenants.items()))
            state = tenant.queue[0][-1]
            if tenant.credit >= state.width:
                break
            tenant.credit += tenant.weight
            self._tenants.move_to_end(name)
        tenant.credit -= state.width
        self.withdraw(state)
        return state

    def withdraw(self, state: RequestState) -> None:
        """Take a request out of the queue; nothing happens to one that is not in it."""
        if not state.is_queued:
            return
        state.is_queued = False
        tenant = self._tenants[state.tenant]
        del tenant.queue[bisect.bisect_left(tenant.queue, (state.priority, state.arrival))]
        tenant.waiting -= state.width
        self.waiting -= state.width
        if not tenant.queue:
            del self._tenants[state.tenant]

    def started(self, state: RequestState) -> None:
        """Note that a request was sent to a worker."""
        self.running += state.width

    def ended(self, state: RequestState) -> None:
        """Note that a request that was started is over."""
        self.left(state)
        self._num_done += state.width
        seconds = time.monotonic() - self._since
        if seconds >= _RATE_SECONDS:
            self._rate = self._num_done / seconds
            self._num_done, self._since = 0, self._since + seconds

    def left(self, state: RequestState) -> None:
        """Note that a request that was started has lost its worker."""
        self.running -= state.width

    def _most(self, capacity: int) -> int:
        """Return how many answers the workers get at once: a few more than they run."""
        ahead = max(1, int(capacity * _AHEAD_SHARE), int(self._rate * _AHEAD_SECONDS))
        return capacity + min(ahead, capacity)

    def _new_tenant(self, name: str) -> _Tenant:
        return _Tenant(self._weights.get(name, 1))
