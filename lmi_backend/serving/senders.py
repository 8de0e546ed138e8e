"""The threads that send answers whose sinks may wait on a server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from lmi_backend.serving.faults import fault_of
from lmi_backend.serving.request_state import send
from lmi_backend.threads import QueueThreads

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from lmi_backend.generation import Chunk
    from lmi_backend.serving.request_state import RequestState

# A send waits on the server with the GIL released; while one waits, the other makes a response.
_COUNT: Final = 2


class Senders:
    """Send the waiting chunks of each scheduled request.

    Args:
        lock: the service's.
        note_sent: gets what was sent of a request, and its outcome or nothing; called with the lock
            held.
        abort: tells a request's worker that nobody waits; called without the lock.
    """

    def __init__(
        self,
        lock: threading.Lock,
        note_sent: Callable[[RequestState, list[Chunk], str], None],
        abort: Callable[[RequestState], None],
    ) -> None:
        self._lock, self._note_sent, self._abort = lock, note_sent, abort
        names = (f"lmi-send-{number}" for number in range(_COUNT))
        self.ready: QueueThreads[RequestState] = QueueThreads(self._send, *names)
        """Requests that are marked as scheduled."""

    def schedule(self, state: RequestState) -> None:
        """Let a request be sent, if it is not about to be; called with the lock held."""
        if not state.is_scheduled:
            state.is_scheduled = True
            self.ready.put(state)

    def _send(self, state: RequestState) -> None:
        chunks: list[Chunk] = []
        try:
            with self._lock:
                chunks, error = state.take()
                is_complete = state.is_complete
            outcome = send(state.sink, chunks, error, is_complete=is_complete)
        except Exception:  # noqa: BLE001  Triton raises its own; a sender must continue
            outcome = self._end_unsendable(state)
        with self._lock:
            self._note_sent(state, chunks, outcome)
            if not outcome:
                state.is_scheduled = False
                if state.has_pending or state.error is not None:
                    self.schedule(state)

    def _end_unsendable(self, state: RequestState) -> str:
        error = fault_of(state, "the answer cannot be sent")
        with self._lock:
            # Nothing else may start it again, or send it.
            state.error = error
        self._abort(state)
        with contextlib.suppress(Exception):
            state.sink.fail(error)
        return "unsendable"
