"""What a service keeps of a new request, and what its worker is sent.

A request waits here, in the stub. Triton's queue cannot do the waiting: with any bound on it, its
batcher looks at the next request only every 0.5 s (dynamic_batch_scheduler.cc, seen on 24.10).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import msgspec

from lmi_backend.clients.registry import WORK, is_at_once
from lmi_backend.clients.request import wanted
from lmi_backend.generation import GenerateRequest, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.serving.admission import tenant_key
from lmi_backend.serving.prefixes import Prompt, prompt_of
from lmi_backend.serving.request_state import RequestState
from lmi_backend.structures import refuse_depth
from lmi_backend.tokenization import TOKEN_PATHS

if TYPE_CHECKING:
    from lmi_backend.engine_config import RequestLimits
    from lmi_backend.serving.request_state import Sink

_DEEPEST: Final = 512
"""Levels of a request. A frame could carry more, and its reader, with another stack, not read them.
What a grammar may have is less (option.max_structure_depth)."""
Command = msg.SetAdapter | msg.Manage | msg.SubmitHttp
"""What a worker is told to do that is no request for an answer."""


class Sender(NamedTuple):
    """Who sends a request, as its client or its gateway says."""

    tenant: str = ""
    session: str = ""
    """Requests of one session have much in common."""
    promise: tuple[int, int] = (0, 0)
    """Milliseconds to the first token and between tokens; 0: any time."""


NOBODY: Final = Sender()


def new_request(
    request_id: int,
    work: msg.Work,
    sink: Sink,
    deadline: float,
    sender: Sender,
    limits: RequestLimits,
) -> tuple[RequestState, msg.Submit | msg.SubmitHttp]:
    """Return the state of a request, and the message that sends it to a worker.

    Raises:
        RequestError: the request is nested too deeply, or is large and cannot be read.
    """
    tenant, name, reads_prompt = sender.tenant, sink.request_id, limits.concurrency_threshold > 0
    if isinstance(work, HttpRequest):
        by_user = limits.tenant_from_user and not tenant
        width, session, pieces, user = wanted(work, reads_all=reads_prompt or by_user)
        tenant = tenant_key(user if by_user else tenant)
        state = RequestState(request_id, sink, width=width, n=1, deadline=deadline, last_chunks=1)
        state.tenant = tenant
        if reads_prompt:
            state.prompt = prompt_of(pieces, len(work.body), sender.session or session)
        return state, msg.SubmitHttp(request_id, work, tenant, None, name, *sender[1:])
    for request in work:
        refuse_depth("the request", request.sampling.extra, _DEEPEST)
    n, tenant = work[0].n, tenant_key(tenant)
    state = RequestState(request_id, sink, width=len(work) * n, n=n, deadline=deadline)
    state.tenant, state.priority = tenant, work[0].priority
    if reads_prompt:
        state.prompt = _prompt(work, sender.session)
    return state, msg.Submit(request_id, work, tenant, None, name, *sender[1:])


def _prompt(work: tuple[GenerateRequest, ...], session: str) -> Prompt:
    """Return the first prompt of a request; the others begin like it, or run next to it."""
    first = work[0]
    salt = crc32(f"{first.adapter} {first.sampling.extra.get('cache_salt')}".encode())
    for image in first.images:
        salt = crc32(image, salt)
    size = sum(len(each.prompt) for each in work)
    if isinstance(first.prompt, str):
        return prompt_of((first.prompt.encode("utf-8", "replace"),), size, session, salt)
    try:
        ids = array("i", first.prompt)
    except (OverflowError, TypeError):
        ids = array("i")
    return prompt_of((ids.tobytes(),), size * ids.itemsize, session, salt)


def new_command(
    request_id: int, command: Command, sink: Sink, deadline: float, only: int | None
) -> tuple[RequestState, Command]:
    """Return the state of a command to `only` one worker, or any, and the command under its id."""
    if isinstance(command, msg.Manage):
        refuse_depth("the body", command.body, _DEEPEST)
    state = RequestState(request_id, sink, width=1, n=1, deadline=deadline)
    state.only = only
    return state, msgspec.structs.replace(command, id=request_id)


def may_wait(message: object) -> bool:
    """Tell whether a request may wait for its turn; what is no work for the engine does not."""
    if isinstance(message, msg.SubmitHttp):
        path = message.request.path
        return path in WORK or not (path in TOKEN_PATHS or is_at_once(path))
    return isinstance(message, msg.Submit)
