"""Find the requests that nobody waits for: cancelled by the client, or out of time.

To ask Triton whether a request is cancelled costs as much as half a response. So the questions get
a small share of the machine's cores, and all requests take turns: on two cores there are 260
questions a second, 13 each 50 ms, which ask 64 requests four times a second.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from lmi_backend.errors import CancelledError, DeadlineError, LmiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lmi_backend.serving.request_state import RequestState

_log = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
_SHARE = 0.02
# CPU of tritonserver and stub for one question.
_QUESTION_SECONDS = 150e-6


class CancellationPoller(threading.Thread):
    """Calls `end` for each open request that is cancelled or out of time.

    And `give_up` for each that has waited for a worker for long enough.
    """

    def __init__(
        self,
        open_states: Callable[[], list[RequestState]],
        end: Callable[[RequestState, LmiError], None],
        give_up: Callable[[RequestState], None] = lambda state: None,
    ) -> None:
        super().__init__(name="lmi-cancel", daemon=True)
        self._open_states, self._end, self._give_up = open_states, end, give_up
        self._has_work = threading.Event()
        self._is_stopping = False
        cores = len(os.sched_getaffinity(0))
        self._asked_a_tick = max(1, int(cores * _SHARE * _TICK_SECONDS / _QUESTION_SECONDS))

    def wake(self) -> None:
        """Tell it that there is a request."""
        self._has_work.set()

    def stop(self) -> None:
        """End the thread."""
        self._is_stopping = True
        self._has_work.set()

    def run(self) -> None:
        """Ask about every open request, again and again, until stopped."""
        while not self._is_stopping:
            self._has_work.wait()
            self._has_work.clear()
            while not self._is_stopping and (states := self._open_states()):
                self._ask_about(states)

    def _ask_about(self, states: list[RequestState]) -> None:
        """Ask about each once, a few a tick."""
        for few in _chunks(states, self._asked_a_tick):
            began = time.monotonic()
            for state in few:
                try:
                    self._ask(state, began)
                except Exception:  # noqa: BLE001  Triton raises its own; the others are still asked
                    _log.exception("request %d: cannot be asked whether it is cancelled", state.id)
            if self._is_stopping:
                return
            time.sleep(_TICK_SECONDS)

    def _ask(self, state: RequestState, now: float) -> None:
        if now > state.deadline:
            message = "the request took longer than its timeout or option.predict_timeout"
            self._end(state, DeadlineError(message))
        elif now > state.give_up_at:
            self._give_up(state)
        elif state.sink.is_cancelled():
            self._end(state, CancelledError("the client cancelled the request"))


def _chunks(states: list[RequestState], size: int) -> Iterator[list[RequestState]]:
    iterator = iter(states)
    return iter(lambda: list(itertools.islice(iterator, size)), [])
