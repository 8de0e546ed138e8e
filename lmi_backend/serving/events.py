"""Hand on what workers send, from the thread that brings it, as far as that need not wait."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final, get_args

from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import chunk_of
from lmi_backend.ipc.messages import error_of
from lmi_backend.serving.request_state import outcome_of
from lmi_backend.tokenization import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk
    from lmi_backend.serving.request_state import DirectClient, RequestState
    from lmi_backend.serving.stats import RequestStats

FromEngine = msg.Output | msg.Failure
"""Messages about one request."""
_FROM_ENGINE: Final = frozenset(get_args(FromEngine))


class Incoming:
    """The way from a worker to a client, or to where an answer waits for its sender.

    An event of a stream takes the shortest way: it passes without a message of its own. The
    service's lock guards this object. An exception fails the request that it concerns.

    Args:
        states: the service's, by request id.
        acknowledged: called with a request when its worker's first message about it arrives, and
            with the chunk in it, if it has a message of its own.
        fail: called in an except block with the request that could not accept a message.
        set_error: fails a request with an error.
        note_sent: called with what was sent, and with the request's outcome or nothing.
    """

    def __init__(
        self,
        states: dict[int, RequestState],
        stats: RequestStats,
        acknowledged: Callable[[RequestState, Chunk | None], None],
        fail: Callable[[RequestState], None],
        set_error: Callable[[RequestState, LmiError], None],
        note_sent: Callable[[RequestState, list[Chunk], str], None],
    ) -> None:
        self._states, self._stats, self._acknowledged, self._fail = (
            states,
            stats,
            acknowledged,
            fail,
        )
        self._set_error, self._note_sent = set_error, note_sent

    def pass_events(
        self, messages: Iterable[msg.FromWorker], clients: set[DirectClient]
    ) -> Iterator[FromEngine]:
        """Hand on the events that can be, note whom to flush, and yield the rest in its order."""
        for message in messages:
            if isinstance(message, msg.Events):
                yield from self._pass(message, clients)
            elif message.__class__ in _FROM_ENGINE:
                yield message  # type: ignore[misc]

    def hear(self, message: FromEngine, clients: set[DirectClient]) -> RequestState | None:
        """Take a message; return the state if it must be scheduled for sending.

        What was stored directly leaves when `clients` are flushed.
        """
        state = self._states.get(message.id)
        if state is None or state.error is not None:
            # Cancelled or failed meanwhile.
            return None
        try:
            return self._take(state, message, clients)
        except Exception:  # noqa: BLE001  what came of others is taken
            self._fail(state)
            return None

    def _take(
        self, state: RequestState, message: FromEngine, clients: set[DirectClient]
    ) -> RequestState | None:
        if isinstance(message, msg.Failure):
            self._set_error(state, error_of(message))
            return None
        is_first = state.progress is not None and state.progress.add(message.chunk)
        if is_first or state.expectation is not None:
            self._acknowledged(state, message.chunk)
        if (direct := state.direct) is not None and not state.is_scheduled:
            chunks = state.pass_on(message.chunk)
            is_last = state.is_complete
            direct.store(chunks, is_last=is_last)
            clients.add(direct.client)
            self._note_sent(state, chunks, outcome_of(chunks[-1]) if is_last else "")
            return None
        state.add(message.chunk)
        if state.is_scheduled:
            return None
        state.is_scheduled = True
        return state

    def _pass(self, events: msg.Events, clients: set[DirectClient]) -> Iterator[msg.Output]:
        now, kind = time.monotonic(), events.__class__
        passed: defaultdict[DirectClient, msg.Events] = defaultdict(lambda: kind([], [], []))
        gaps: defaultdict[tuple[float, int], int] = defaultdict(int)
        for number, data, ids in zip(events.ids, events.data, events.token_ids, strict=True):
            if (state := self._states.get(number)) is None:
                # Cancelled or failed meanwhile.
                continue
            if (sink := state.event_sink) is None:
                yield from self._apart(state, kind, data, ids)
                continue
            try:
                if state.progress is not None and state.progress.pass_event(data, ids):
                    self._acknowledged(state, None)
                own = passed[sink.client]
                own.ids.append(sink.number)
                own.data.append(data)
                own.token_ids.append(ids)
                num_tokens = len(ids) // ID_BYTES
                gaps[state.sent_at, num_tokens] += 1
                state.note_event(num_tokens, now)
            except Exception:  # noqa: BLE001  the others' events are passed on
                self._fail(state)
        self._stats.passed(gaps, now)
        # After what was yielded: of no request did an event come before its chunk here.
        for client, own in passed.items():
            clients.add(client)
            try:
                client.store([own])
            except Exception:  # noqa: BLE001  other clients get theirs
                self._fail_all(client, own)

    def _apart(
        self, state: RequestState, kind: type[msg.Events], data: bytes, ids: bytes
    ) -> list[msg.Output]:
        """Return the message of an event that needs one; none if it cannot be read."""
        try:
            return [msg.Output(state.id, chunk_of(kind, data, ids))]
        except Exception:  # noqa: BLE001  the others' events are passed on
            self._fail(state)
            return []

    def _fail_all(self, client: DirectClient, events: msg.Events) -> None:
        lost = set(events.ids)
        for state in list(self._states.values()):
            sink = state.direct
            if sink is not None and sink.client is client and sink.number in lost:
                self._fail(state)
