"""What a service keeps of a new request, and what its worker is sent.

A request waits here, in the stub. Triton's queue cannot do the waiting: with any bound on it, its
batcher looks at the next request only every 0.5 s (dynamic_batch_scheduler.cc, seen on 24.10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lmi_backend.generation import HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.serving.admission import tenant_key
from lmi_backend.serving.answers import AT_ONCE, answers_wanted
from lmi_backend.serving.request_state import RequestState

if TYPE_CHECKING:
    from lmi_backend.serving.request_state import Sink

Order = msg.SetAdapter | msg.Manage
"""What a worker is told to do that is no request for an answer."""


def take_in(
    request_id: int, work: msg.Work, sink: Sink, deadline: float, tenant: str
) -> tuple[RequestState, msg.Submit | msg.SubmitHttp]:
    """Return the state of a request, and the message that asks a worker."""
    tenant = tenant_key(tenant)
    if isinstance(work, HttpRequest):
        width = answers_wanted(work)
        state = RequestState(request_id, sink, width=width, n=1, deadline=deadline, ends=1)
        state.tenant = tenant
        return state, msg.SubmitHttp(request_id, work, tenant)
    n = work[0].n
    state = RequestState(request_id, sink, width=len(work) * n, n=n, deadline=deadline)
    state.tenant, state.priority = tenant, work[0].priority
    return state, msg.Submit(request_id, work, tenant)


def take_order(
    request_id: int, order: Order, sink: Sink, deadline: float, only: int | None
) -> tuple[RequestState, Order]:
    """Return the state of an order to `only` one worker, or any, and the order under its id."""
    state = RequestState(request_id, sink, width=1, n=1, deadline=deadline)
    state.only = only
    return state, msgspec.structs.replace(order, id=request_id)


def may_wait(message: object) -> bool:
    """Tell whether a request may wait for its turn; what is no work for the engine does not."""
    if isinstance(message, msg.SubmitHttp):
        return message.request.path not in AT_ONCE
    return isinstance(message, msg.Submit)
