"""Let the tokens of a stream wait for each other, where a response for each would cost too much.

A response costs the same however many tokens share it. So at any load the responses of all streams
together get a share of the machine's cores and no more; what that comes to is how far apart those
of one stream are. A few streams are not slowed at all.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.serving.session import Session

# CPU of tritonserver and stub for one streamed response; `make bench`, c=64 without waiting.
_RESPONSE_SECONDS: Final = 310e-6
_SHARE: Final = 0.15
_SHORTEST: Final = 0.005
_LONGEST: Final = 0.05


def gap(streams: int, cores: int) -> float:
    """Return the seconds between two responses of a stream, 0 for no wait at all."""
    needed = streams * _RESPONSE_SECONDS / (cores * _SHARE)
    return 0.0 if needed < _SHORTEST else min(needed, _LONGEST)


class Pacer(threading.Thread):
    """Holds sessions until they are due.

    Args:
        release: gets each one that is due; called from this thread.
    """

    def __init__(self, release: Callable[[Session], None]) -> None:
        super().__init__(name="lmi-pace", daemon=True)
        self._release = release
        self._cores = len(os.sched_getaffinity(0))
        self._held: list[tuple[float, int, Session]] = []
        self._changed = threading.Condition()
        self._is_stopping = False

    def due(self, session: Session, streams: int) -> float:
        """Return when a session may be sent; 0 for now.

        The first response, and the end of an answer, never wait.
        """
        is_urgent = not session.sent_at or session.is_complete or session.error is not None
        if is_urgent or not session.sink.is_costly:
            return 0.0
        when = session.sent_at + gap(streams, self._cores)
        return when if when > time.monotonic() else 0.0

    def hold(self, session: Session, when: float) -> None:
        """Release a session at a time."""
        with self._changed:
            is_next = not self._held or when < self._held[0][0]
            heapq.heappush(self._held, (when, id(session), session))
            if is_next:
                self._changed.notify()

    def stop(self) -> None:
        """End the thread; what it holds is not released."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()

    def run(self) -> None:
        """See `Thread`."""
        while (session := self._next()) is not None:
            self._release(session)

    def _next(self) -> Session | None:
        """Wait for the next session that is due; return None at the end."""
        with self._changed:
            while not self._is_stopping:
                if not self._held:
                    self._changed.wait()
                    continue
                left = self._held[0][0] - time.monotonic()
                if left <= 0:
                    return heapq.heappop(self._held)[2]
                self._changed.wait(left)
        return None
