"""Decide what becomes of the requests of a process that has died.

The stub decides so for a worker's requests, and the front end for a stub's. A request that has
sent nothing is sent again as it was. A stream resumes from the ids of its tokens, which its chunks
carry where the engine can do that. A request that may be the cause of the death is quarantined.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from lmi_backend.errors import EngineDeadError
from lmi_backend.resume.progress import Progress, may_resume

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MOST_STRIKES: Final = 2
"""Deaths of processes that only one request can have caused, after which it counts as the cause."""
# Another start may take longer than those before: its files may be out of memory, its cores taken.
_STARTS: Final = 3
_MARGIN_SECONDS: Final = 15.0


class Resumable(Protocol):
    """A request that may resume in another process."""

    @property
    def progress(self) -> Progress | None:
        """What lets it resume; None if it cannot."""


_Request = TypeVar("_Request", bound=Resumable)


def longest_wait(timeout: float | None, start_seconds: float) -> float:
    """Return how long a request may wait for a process; without a timeout, some of its starts."""
    return _STARTS * start_seconds + _MARGIN_SECONDS if timeout is None else timeout


class Resumption(Generic[_Request]):
    """Which requests resume, how often, how long they wait, and which of them start alone.

    Requests in quarantine start one after the other: the next when the one before has answered
    something or has finished. The owner of the object guards it: it has no lock.

    Args:
        process: what dies, with its article.
        timeout: seconds that a request may wait for a process; None to derive them from what a
            start takes; 0 to let none wait or resume.
        limit: times that a request may resume.
    """

    def __init__(self, process: str, timeout: float | None, limit: int) -> None:
        self._process = process
        self.timeout, self.limit = timeout, limit
        self.num_resumed = self.num_queued = self.num_expired = 0
        """Requests that resumed, that waited before they began, and that waited for too long."""
        self.num_repeated = 0
        """Tokens that the answers had that resumed: they are computed again."""
        self._quarantine: deque[_Request] = deque()
        self._alone: _Request | None = None
        """The request of the quarantine that runs now."""

    def progress(self, message: object, width: int, *, hands_on: bool = False) -> Progress | None:
        """Return what is to be kept of a new request; None if it never resumes."""
        if self.timeout == 0 or not may_resume(message):
            return None
        return Progress(message, width, hands_on=hands_on)

    def refusals(
        self, requests: Sequence[_Request], error: EngineDeadError
    ) -> list[EngineDeadError | None]:
        """Return why each request of a process that died (`error`) fails; None if it resumes."""
        cause = _cause(requests)
        strikes = f"it was in each of {MOST_STRIKES} deaths of {self._process}, and is not resumed"
        fatal = EngineDeadError(f"{error}; {strikes}")
        return [fatal if each is cause else self.refusal(each, error) for each in requests]

    def refusal(self, request: _Request, error: EngineDeadError) -> EngineDeadError | None:
        """Return why a request that has lost its process fails; None if it may resume."""
        progress = request.progress
        if self.timeout == 0 or progress is None or not progress.can_continue:
            return error
        if progress.times < self.limit:
            return None
        times = f"; it resumed {progress.times} times before (option.migration_limit)"
        return EngineDeadError(f"{error}{times if progress.times else ''}")

    def wait_until(self, ready_in: Callable[[], float]) -> float:
        """Return until when a request may wait, on the monotonic clock; 0 if it may not."""
        expected = math.inf if self.timeout == 0 else ready_in()
        if math.isinf(expected):
            return 0.0
        longest = longest_wait(self.timeout, expected)
        return time.monotonic() + longest if expected <= longest else 0.0

    def expire(self, lost: EngineDeadError | None) -> EngineDeadError:
        """Return the error of a request that waited too long, for a first process or another."""
        self.num_expired += 1
        waited = "no worker was ready in time (option.migration_timeout)"
        return EngineDeadError(f"{lost}; {waited}" if lost else waited)

    def quarantine(self, request: _Request) -> bool:
        """Keep a request that may be fatal until `next`; return whether it may be.

        The one that runs alone begins again.
        """
        if not _is_suspect(request):
            return False
        if request is self._alone:
            self._alone = None
            self._quarantine.appendleft(request)
        else:
            self._quarantine.append(request)
        return True

    def next(self) -> _Request | None:
        """Return the request of the quarantine that starts now, if one does."""
        if not self._quarantine or self._alone is not None:
            return None
        self._alone = self._quarantine.popleft()
        return self._alone

    def release(self, request: _Request) -> bool:
        """Forget a request that has answered or finished; return whether another may start."""
        # Seldom so, and what is raised for each request costs as much as a token.
        if self._quarantine:
            with contextlib.suppress(ValueError):
                self._quarantine.remove(request)
        if request is not self._alone:
            return False
        self._alone = None
        return True

    def clear(self) -> list[_Request]:
        waiting = list(self._quarantine)
        self._quarantine.clear()
        self._alone = None
        return waiting


def _is_suspect(request: Resumable) -> bool:
    return request.progress is not None and request.progress.strikes >= MOST_STRIKES


def _cause(requests: Sequence[_Request]) -> _Request | None:
    """Give a strike to each request that may be the cause of its process's death.

    These are the requests without any token yet, for the process may have died of their first step.
    If there is none, they are all.

    Returns:
        The one that `MOST_STRIKES` deaths can have as their cause, if there is one.
    """
    resumable = [(each, each.progress) for each in requests if each.progress is not None]
    silent = [(each, progress) for each, progress in resumable if not progress.is_acknowledged]
    for _, progress in silent or resumable:
        progress.strikes += 1
    suspects = [each for each, _ in silent if _is_suspect(each)]
    return suspects[0] if len(suspects) == 1 else None
