"""Let requests outlive their workers: what is kept of an answer, and who may go on with it.

A request whose worker is gone waits in the queue again and goes to the next worker that is ready.
One that has sent nothing is simply asked again. A stream goes on from the ids of its tokens, which
its chunks carry where the engine can do that. Guarded by the service's lock.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from lmi_backend.errors import EngineDeadError
from lmi_backend.generation import Continuation, Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.serving.request_state import RequestState

MOST_DEATHS: Final = 2
"""Deaths of workers of which one request alone can be the cause, after which it is."""
_HEAD_BYTES: Final = 512
_MARGIN_SECONDS: Final = 5.0
_USERS_CODE: Final = "/invocations"


class Progress:
    """What is kept of a request that may go on elsewhere.

    Args:
        message: how its first worker was asked.
        width: answers it will have.
    """

    __slots__ = (
        "_cumulative_logprob",
        "_head",
        "_ids",
        "_is_known",
        "_message",
        "_num_lines",
        "_width",
        "has_begun",
        "is_proven",
        "moves",
        "suspicion",
    )

    def __init__(self, message: msg.Submit | msg.SubmitHttp, width: int) -> None:
        self._message, self._width = message, width
        self._ids = bytearray()
        self._is_known = True
        """Whether the ids of all its tokens came."""
        self._num_lines, self._head = 0, b""
        self._cumulative_logprob: float | None = None
        self.has_begun = False
        """Whether anything of its answer came."""
        self.is_proven = False
        """Whether anything came from the worker that has it now."""
        self.moves = 0
        self.suspicion = 0
        """Deaths of workers that it may have caused."""

    @property
    def size(self) -> int:
        """Bytes that are kept of the answer."""
        return len(self._ids)

    @property
    def can_continue(self) -> bool:
        """Whether another worker can go on."""
        return not self.has_begun or (self._width == 1 and self._is_known and bool(self._ids))

    def add(self, chunk: Chunk) -> bool:
        """Keep what a chunk tells of where to go on, and take it from the chunk.

        Returns whether it is the first from this worker.
        """
        if ids := chunk.ids:
            self._ids += ids
            chunk.ids = b""
        elif chunk.num_tokens:
            self._is_known = False
        if chunk.__class__ is Delta:
            self._cumulative_logprob = chunk.cumulative_logprob
        else:
            data: bytes = chunk.data  # type: ignore[union-attr]
            if not self.has_begun:
                self._head = data[:_HEAD_BYTES]
            self._num_lines += data.count(b"\n")
        self.has_begun = True
        if self.is_proven:
            return False
        self.is_proven = True
        return True

    def message(self, request_id: int) -> msg.Submit | msg.SubmitHttp:
        """Return how the next worker is asked."""
        asked, where = self._message, self._continuation()
        if isinstance(asked, msg.SubmitHttp):
            request = replace(asked.request, continuation=where)
            return replace(asked, id=request_id, request=request)
        requests = tuple(replace(each, continuation=where) for each in asked.requests)
        return replace(asked, id=request_id, requests=requests)

    def _continuation(self) -> Continuation | None:
        if not self.has_begun:
            return None
        return Continuation(bytes(self._ids), self._num_lines, self._head, self._cumulative_logprob)


def is_suspect(state: RequestState) -> bool:
    """Tell whether a request may have been the cause of as many deaths as one may."""
    return state.progress is not None and state.progress.suspicion >= MOST_DEATHS


def renew(state: RequestState, request_id: int) -> None:
    """Give a request that goes on another id, and pack it for its next worker."""
    state.id = request_id
    if state.progress is not None:
        state.frame = encode([state.progress.message(request_id)])


class Trials:
    """Requests that may be fatal, which start one after the other: the next when one has proved."""

    def __init__(self) -> None:
        self._waiting: deque[RequestState] = deque()
        self._on_trial: RequestState | None = None

    def hold(self, state: RequestState) -> None:
        """Let a request wait for its trial; the one that is on trial begins again."""
        if state is self._on_trial:
            self._on_trial = None
            self._waiting.appendleft(state)
        else:
            self._waiting.append(state)

    def next(self) -> RequestState | None:
        """Return the request whose trial begins now, if one does."""
        if not self._waiting or self._on_trial is not None:
            return None
        self._on_trial = self._waiting.popleft()
        return self._on_trial

    def end(self, state: RequestState) -> bool:
        """Forget a request; return whether another's trial may begin."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(state)
        if state is not self._on_trial:
            return False
        self._on_trial = None
        return True


class Migration:
    """The rules by which requests go on.

    Args:
        timeout: seconds that a request may wait while no worker is ready; None to go by what a
            start takes; 0 to let none wait or go on.
        limit: times a request may go on elsewhere.
    """

    def __init__(self, timeout: float | None, limit: int) -> None:
        self._timeout, self._limit = timeout, limit
        self.moved = self.held = self.given_up = 0
        """Requests that went on, that waited before they began, and that did not go on in time."""

    @property
    def is_on(self) -> bool:
        """Whether requests may go on, or wait, at all."""
        return self._timeout != 0

    def progress(self, message: object, width: int) -> Progress | None:
        """Return what is to be kept of a request; None if it never goes on.

        Users' own code may do anything, and is not called twice.
        """
        if not self.is_on:
            return None
        if isinstance(message, msg.SubmitHttp) and message.request.path != _USERS_CODE:
            return Progress(message, width)
        return Progress(message, width) if isinstance(message, msg.Submit) else None

    def wait_until(self, ready_in: Callable[[], float]) -> float:
        """Return until when a request may wait for a worker, on the monotonic clock; 0: not at all.

        Args:
            ready_in: returns the seconds in which a worker is expected to be ready.
        """
        expected = ready_in() if self.is_on else math.inf
        if math.isinf(expected):
            return 0.0
        longest = 2 * expected + _MARGIN_SECONDS if self._timeout is None else self._timeout
        return time.monotonic() + longest if expected <= longest else 0.0

    def cause_of_death(self, states: Sequence[RequestState]) -> RequestState | None:
        """Note which requests may be the cause of their worker's death.

        Those of which it had brought nothing, for it may have died of their first step; all, if
        there is none of these.

        Returns:
            The one that two deaths can be put down to, where there is one.
        """
        kept = [state for state in states if state.progress is not None]
        unproven = [state for state in kept if not state.progress.is_proven]  # type: ignore[union-attr]
        for state in unproven or kept:
            state.progress.suspicion += 1  # type: ignore[union-attr]
        suspected = [state for state in unproven if is_suspect(state)]
        return suspected[0] if len(suspected) == 1 else None

    def refusal(self, state: RequestState, error: EngineDeadError) -> EngineDeadError | None:
        """Return the error of a request that cannot go on; None if it can."""
        progress = state.progress
        if progress is None or not progress.can_continue:
            return error
        if progress.moves >= self._limit:
            times = f"it went on {progress.moves} times before (option.migration_limit)"
            return EngineDeadError(f"{error}; {times}" if progress.moves else str(error))
        return None

    def blame(self, error: EngineDeadError) -> EngineDeadError:
        """Return the error of a request that its workers die of."""
        deaths = f"it was in each of {MOST_DEATHS} deaths of a worker, and is not tried again"
        return EngineDeadError(f"{error}; {deaths}")

    def late(self, state: RequestState) -> EngineDeadError:
        """Return the error of a request for which no worker was ready in time."""
        self.given_up += 1
        waited = "no worker was ready in time (option.migration_timeout)"
        return EngineDeadError(f"{state.loss}; {waited}" if state.loss else waited)
