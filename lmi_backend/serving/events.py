"""Hand events of streams on to clients of the endpoint, from the thread that brings them."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final, get_args

from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, chunk_of, rows
from lmi_backend.token_ids import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lmi_backend.serving.request_state import DirectClient, RequestState
    from lmi_backend.serving.stats import RequestStats

FromEngine = msg.Output | msg.HttpOutput | msg.Failure
"""What ends up with one request."""
_FROM_ENGINE: Final = frozenset(get_args(FromEngine))


class EventPath:
    """The shortest way from a worker to a client: an event passes it without a chunk of its own.

    Guarded by the service's lock.

    Args:
        states: the service's, by request id.
        proved: called with a request of which its worker has brought the first.
    """

    def __init__(
        self,
        states: dict[int, RequestState],
        stats: RequestStats,
        proved: Callable[[RequestState], None],
    ) -> None:
        self._states, self._stats, self._proved = states, stats, proved

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

    def _pass(self, events: msg.Events, clients: set[DirectClient]) -> Iterator[msg.HttpOutput]:
        now = time.monotonic()
        passed: defaultdict[DirectClient, list[msg.ToClient]] = defaultdict(list)
        for number, data, token_ids in rows(events):
            state = self._states.get(number)
            sink = state.event_sink if state is not None else None
            if state is None or sink is None:
                yield msg.HttpOutput(number, chunk_of(data, token_ids))
                continue
            if state.progress is not None and state.progress.add_event(data, token_ids):
                self._proved(state)
            append_event(passed[sink.client], sink.number, data, token_ids)
            self._stats.sent_event(state, len(token_ids) // ID_BYTES, now)
        # After what was yielded: of no request did an event come before its chunk here.
        for client, own in passed.items():
            client.store(own)
            clients.add(client)
