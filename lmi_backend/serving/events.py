"""Hand on what workers send, from the thread that brings it, as far as that need not wait."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final, get_args

from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, chunk_of, rows
from lmi_backend.ipc.failures import error_of
from lmi_backend.serving.request_state import outcome_of
from lmi_backend.token_ids import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk
    from lmi_backend.serving.request_state import DirectClient, RequestState
    from lmi_backend.serving.stats import RequestStats

FromEngine = msg.Output | msg.HttpOutput | msg.Failure
"""What ends up with one request."""
_FROM_ENGINE: Final = frozenset(get_args(FromEngine))


class Incoming:
    """The way from a worker to a client, or to where an answer waits for its sender.

    It is shortest for an event of a stream, which passes without a chunk of its own. Guarded by
    the service's lock. An exception is the failure of the request that it is of.

    Args:
        states: the service's, by request id.
        proved: called with a request of which its worker has brought the first.
        fail: called in an except block with a request that what came could not be handed to.
        set_error: ends a request with an error.
        note_sent: called with what was sent, and how that ended the request or nothing.
    """

    def __init__(
        self,
        states: dict[int, RequestState],
        stats: RequestStats,
        proved: Callable[[RequestState], None],
        fail: Callable[[RequestState], None],
        set_error: Callable[[RequestState, LmiError], None],
        note_sent: Callable[[RequestState, list[Chunk], str], None],
    ) -> None:
        self._states, self._stats, self._proved, self._fail = states, stats, proved, fail
        self._set_error, self._note_sent = set_error, note_sent

    def pass_events(
        self, messages: Iterable[msg.FromWorker], clients: set[DirectClient]
    ) -> Iterator[FromEngine]:
        """Hand on the events that can be, and yield what else is for a request, in its order.

        Args:
            clients: gets those that have something to flush.
        """
        for message in messages:
            if message.__class__ is msg.Events:
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
        if state.progress is not None and state.progress.add(message.chunk):
            self._proved(state)
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

    def _pass(self, events: msg.Events, clients: set[DirectClient]) -> Iterator[msg.HttpOutput]:
        now = time.monotonic()
        passed: defaultdict[DirectClient, list[msg.ToClient]] = defaultdict(list)
        for number, data, token_ids in rows(events):
            state = self._states.get(number)
            sink = state.event_sink if state is not None else None
            if state is None or sink is None:
                yield msg.HttpOutput(number, chunk_of(data, token_ids))
                continue
            try:
                if state.progress is not None and state.progress.add_event(data, token_ids):
                    self._proved(state)
                append_event(passed[sink.client], sink.number, data, token_ids)
                self._stats.sent_event(state, len(token_ids) // ID_BYTES, now)
            except Exception:  # noqa: BLE001  the others' events are passed on
                self._fail(state)
        # After what was yielded: of no request did an event come before its chunk here.
        for client, own in passed.items():
            clients.add(client)
            try:
                client.store(own)
            except Exception:  # noqa: BLE001  other clients get theirs
                self._fail_all(client, own)

    def _fail_all(self, client: DirectClient, messages: Iterable[msg.ToClient]) -> None:
        """Fail the requests of a client of which it could not be handed events."""
        lost = {
            each for message in messages if isinstance(message, msg.Events) for each in message.ids
        }
        for state in list(self._states.values()):
            sink = state.direct
            if sink is not None and sink.client is client and sink.number in lost:
                self._fail(state)
