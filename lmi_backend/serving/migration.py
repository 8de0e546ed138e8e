"""Let requests outlive their workers: which may go on, how often and how long they wait.

A request whose worker is gone waits in the queue again and goes to the next worker that is ready.
One that has sent nothing is simply asked again. A stream goes on from the ids of its tokens, which
its chunks carry where the engine can do that. Guarded by the service's lock.

The front end goes by the same rules when a stub is gone.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from lmi_backend.errors import EngineDeadError
from lmi_backend.ipc.frames import encode
from lmi_backend.serving.progress import Progress, may_go_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lmi_backend.serving.request_state import RequestState

MOST_DEATHS: Final = 2
"""Deaths of processes of which one request alone can be the cause, after which it is."""
# Another start may take longer than those before: its files may be out of memory, its cores taken.
_STARTS: Final = 3
_MARGIN_SECONDS: Final = 15.0


class Migrant(Protocol):
    """A request that may go on elsewhere."""

    @property
    def progress(self) -> Progress | None:
        """What lets it go on; None if it cannot."""
        ...


_Request = TypeVar("_Request", bound=Migrant)


def is_suspect(request: Migrant) -> bool:
    """Tell whether a request may have been the cause of as many deaths as one may."""
    return request.progress is not None and request.progress.suspicion >= MOST_DEATHS


def cause_of_death(requests: Sequence[_Request]) -> _Request | None:
    """Note which of the requests of a process may be the cause of its death.

    Those of which it had brought nothing, for it may have died of their first step; all, if there
    is none of these.

    Returns:
        The one that two deaths can be put down to, where there is one.
    """
    kept = [request for request in requests if request.progress is not None]
    unproven = [request for request in kept if not request.progress.is_proven]  # type: ignore[union-attr]
    for request in unproven or kept:
        request.progress.suspicion += 1  # type: ignore[union-attr]
    suspected = [request for request in unproven if is_suspect(request)]
    return suspected[0] if len(suspected) == 1 else None


def blame(error: EngineDeadError, process: str) -> EngineDeadError:
    """Return the error of a request that its processes die of.

    Args:
        process: what died, with its article.
    """
    deaths = f"it was in each of {MOST_DEATHS} deaths of {process}, and is not tried again"
    return EngineDeadError(f"{error}; {deaths}")


def refusal(
    progress: Progress | None, limit: int, error: EngineDeadError
) -> EngineDeadError | None:
    """Return the error of a request that cannot go on; None if it can.

    Args:
        progress: of the request.
        limit: times it may go on.
        error: how its process died.
    """
    if progress is None or not progress.can_continue:
        return error
    if progress.moves >= limit:
        times = f"it went on {progress.moves} times before (option.migration_limit)"
        return EngineDeadError(f"{error}; {times}" if progress.moves else str(error))
    return None


def renew(state: RequestState, request_id: int) -> None:
    """Give a request that goes on another id, and pack it for its next worker."""
    state.id = request_id
    if state.progress is not None:
        state.frame = encode([state.progress.message(request_id)])


class Trials(Generic[_Request]):
    """Requests that may be fatal, which start one after the other: the next when one has proved."""

    def __init__(self) -> None:
        self._waiting: deque[_Request] = deque()
        self._on_trial: _Request | None = None

    def take(self, request: _Request) -> bool:
        """Let a request wait for its trial, if it may be fatal; return whether it does.

        The one that is on trial begins again.
        """
        if not is_suspect(request):
            return False
        if request is self._on_trial:
            self._on_trial = None
            self._waiting.appendleft(request)
        else:
            self._waiting.append(request)
        return True

    def next(self) -> _Request | None:
        """Return the request whose trial begins now, if one does."""
        if not self._waiting or self._on_trial is not None:
            return None
        self._on_trial = self._waiting.popleft()
        return self._on_trial

    def end(self, request: _Request) -> bool:
        """Forget a request; return whether another's trial may begin."""
        with contextlib.suppress(ValueError):
            self._waiting.remove(request)
        if request is not self._on_trial:
            return False
        self._on_trial = None
        return True

    def clear(self) -> list[_Request]:
        """Return those that wait, and forget all."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._on_trial = None
        return waiting


def patience(timeout: float | None, start_seconds: float) -> float:
    """Return how long a request may wait for a worker that takes some seconds to start.

    Args:
        timeout: what the user asks for; None to go by what a start takes.
    """
    return _STARTS * start_seconds + _MARGIN_SECONDS if timeout is None else timeout


class Migration:
    """The rules by which requests go on.

    Args:
        timeout: seconds that a request may wait while no worker is ready; None to go by what a
            start takes; 0 to let none wait or go on.
        limit: times a request may go on elsewhere.
    """

    def __init__(self, timeout: float | None, limit: int) -> None:
        self._timeout, self.limit = timeout, limit
        self.moved = self.held = self.given_up = 0
        """Requests that went on, that waited before they began, and that did not go on in time."""

    @property
    def is_on(self) -> bool:
        """Whether requests may go on, or wait, at all."""
        return self._timeout != 0

    def progress(self, message: object, state: RequestState) -> Progress | None:
        """Return what is to be kept of a request; None if it never goes on."""
        if not self.is_on or not may_go_on(message):
            return None
        hands_on = state.direct is not None and state.direct.keeps_ids
        return Progress(message, state.width, hands_on=hands_on)

    def wait_until(self, ready_in: Callable[[], float]) -> float:
        """Return until when a request may wait for a worker, on the monotonic clock; 0: not at all.

        Args:
            ready_in: returns the seconds in which a worker is expected to be ready.
        """
        expected = ready_in() if self.is_on else math.inf
        if math.isinf(expected):
            return 0.0
        longest = patience(self._timeout, expected)
        return time.monotonic() + longest if expected <= longest else 0.0

    def late(self, state: RequestState) -> EngineDeadError:
        """Return the error of a request for which no worker was ready in time."""
        self.given_up += 1
        waited = "no worker was ready in time (option.migration_timeout)"
        return EngineDeadError(f"{state.loss}; {waited}" if state.loss else waited)
