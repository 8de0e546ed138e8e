"""Find the requests that nobody waits for: cancelled by the client, or out of time.

One call of Triton's `is_cancelled` costs as much as half a response. So these calls get a small
share of the machine's cores, and all requests of Triton take turns. Two cores allow 260 calls a
second, 13 each 50 ms: 64 requests are checked four times a second. Clocks and the clients of the
endpoint cost next to nothing, and are checked for all requests each time. A client of the endpoint
says so when it leaves, so while Triton has no request four looks a second are enough.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import CancelledError, DeadlineError, LmiError
from lmi_backend.serving.request_state import fault_of
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.serving.request_state import RequestState

LEFT: Final = "the client cancelled the request"
_LATE: Final = "the request took longer than its timeout or option.predict_timeout"
_TICK_SECONDS = 0.05
_SLOW_TICK_SECONDS = 0.25
_SHARE = 0.02
# CPU of tritonserver and stub for one question.
_CHECK_SECONDS = 150e-6


class CancellationPoller:
    """Calls `end`, in a thread, for each open request that is cancelled or out of time.

    And `expire` for each that has waited for a worker for long enough.
    """

    def __init__(
        self,
        open_states: Callable[[], list[RequestState]],
        end: Callable[[RequestState, LmiError], None],
        expire: Callable[[RequestState], None] = lambda state: None,
    ) -> None:
        self._open_states, self._end, self._expire = open_states, end, expire
        self._has_work = threading.Event()
        self._is_stopping = False
        cores = len(os.sched_getaffinity(0))
        self._checks_a_tick = max(1, int(cores * _SHARE * _TICK_SECONDS / _CHECK_SECONDS))
        self._to_check: deque[RequestState] = deque()
        """Requests of Triton's whose turn has not come."""
        self.thread = guarded_thread("lmi-cancel", self._run)

    def start(self) -> None:
        self.thread.start()

    def wake(self) -> None:
        self._has_work.set()

    def stop(self) -> None:
        self._is_stopping = True
        self._has_work.set()

    def _run(self) -> None:
        while not self._is_stopping:
            self._has_work.wait()
            self._has_work.clear()
            try:
                while not self._is_stopping and (states := self._open_states()):
                    time.sleep(_TICK_SECONDS if self.look_at(states) else _SLOW_TICK_SECONDS)
            except BaseException:
                # When this begins again, the requests are still there.
                self.wake()
                raise

    def look_at(self, states: list[RequestState]) -> bool:
        """Look at the clocks of all, check a few of Triton's, and return whether it has any."""
        now = time.monotonic()
        costly = [state for state in states if self.must_be_checked(state, now)]
        self._to_check = self._to_check or deque(costly)
        for _ in range(min(self._checks_a_tick, len(self._to_check))):
            self._check(self._to_check.popleft())
        return bool(costly)

    def must_be_checked(self, state: RequestState, now: float) -> bool:
        """End a request that is out of time; return whether it is one of Triton's, and is not."""
        try:
            if now > state.deadline:
                self._end(state, DeadlineError(_LATE))
            elif now > state.expires_at:
                self._expire(state)
            elif state.direct is None:
                return True
        except Exception:  # noqa: BLE001  the others are looked at
            fault_of(state, "it cannot be cancelled")
            return False
        if state.direct is not None:
            self._check(state)
        return False

    def _check(self, state: RequestState) -> None:
        try:
            if state.sink.is_cancelled():
                self._end(state, CancelledError(LEFT))
        except Exception:  # noqa: BLE001  Triton raises its own; the others are still asked
            fault_of(state, "whether it is cancelled is not known")
