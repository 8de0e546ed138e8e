"""The answers that outlive the connection of their front end, until another one requests them.

Their chunks are kept from the first to the last. A front end that comes back gets all of them, for
only it knows which events of the client's they make.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.errors import HttpError, MovedError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import failure_of
from lmi_backend.ipc.kept_chunks import KeptChunks
from lmi_backend.ipc.rejoining import NOT_KEPT, Keep, Rejoin, Rejoined
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

_log = logging.getLogger(__name__)

KEPT_BYTES: Final = 4 << 20
"""Of one answer. Above it the answer is kept no longer."""
ALL_KEPT_BYTES: Final = 256 << 20
"""Of all answers of a model. Above it those without a front end are deleted, then the one that
grows."""
_EVENTS: Final = "text/event-stream"


class KeptAnswers:
    """The answers of a model that are kept.

    One lock guards all of them: it is held where chunks come, and where a front end leaves or comes
    back, so that no chunk is lost between two front ends.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._kept: dict[str, KeptSink] = {}
        self._size = 0
        self._closed = threading.Event()
        self._num_rejoined = 0

    def counts(self) -> dict[str, int]:
        """Return how many answers are kept and without a front end, and what they take."""
        with self.lock:
            alone = sum(sink.is_alone for sink in self._kept.values())
            return {
                "kept": len(self._kept),
                "alone": alone,
                "bytes": self._size,
                "rejoined": self._num_rejoined,
            }

    def sink(
        self, client: ClientConnection, number: int, order: Keep | None, *, is_rest: bool
    ) -> ClientSink:
        """Return the sink of a new request, which keeps its chunks where that is ordered.

        Args:
            client: its front end.
            number: the front end's for it.
            order: how it is to be kept.
            is_rest: whether it resumes: the chunks before are not known, so none is kept.
        """
        if order is None or self._closed.is_set():
            return ClientSink(client, number)
        with self.lock:
            if (before := self._kept.get(order.name)) is not None:
                # Its front end has lost its connection, and has it generated again.
                self.end(before)
            if is_rest:
                return ClientSink(client, number)
            sink = KeptSink(self, client, number, order)
            self._kept[order.name] = sink
            self._size += sink.chunks.size
        if client.is_gone:
            # It left before the sink was known.
            self.leave(client)
        return sink

    def rejoin(self, asked: Rejoin, client: ClientConnection) -> None:
        """Send a front end all of an answer, and what follows."""
        with self.lock:
            sink = self._kept.get(asked.name)
            if sink is None or sink.order.owner != asked.owner:
                error = HttpError(HTTPStatus.NOT_FOUND, NOT_KEPT)
                client.store([failure_of(asked.id, error)])
                others = [client]
            else:
                self._num_rejoined += 1
                others = [client, sink.client]
                sink.move(client, asked.id)
                self._count(sink)
        # Not with the lock held: where it fails, requests end, which takes the service's.
        for each in others:
            each.flush()
        if client.is_gone:
            # It left before it had the answer.
            self.leave(client)

    def forget(self, name: str, client: ClientConnection) -> None:
        """Keep an answer no longer, as the front end that has it says."""
        with self.lock:
            sink = self._kept.get(name)
            if sink is not None and sink.pid == client.pid:
                self.end(sink)

    def leave(self, client: ClientConnection) -> None:
        """Keep the answers of a client that has gone for as long as their clients may reconnect."""
        with self.lock:
            own = [sink for sink in self._kept.values() if sink.client is client]
            for sink in own:
                # Without an event nobody knows its name.
                if sink.chunks.is_empty or sink.is_gone or self._closed.is_set():
                    self.drop(sink)
                    sink.is_gone = True
                else:
                    sink.be_alone()
            alone = [sink for sink in own if sink.is_alone]
        if alone:
            _log.info("%d answers are kept: their front end has gone", len(alone))
            seconds = max(sink.order.seconds for sink in alone)
            guarded_thread("lmi-kept", partial(self._expire, seconds, alone)).start()

    def _expire(self, seconds: float, sinks: Iterable[KeptSink]) -> None:
        """Delete answers that no front end has requested within some seconds."""
        self._closed.wait(seconds)
        with self.lock:
            for sink in sinks:
                if sink.is_alone and sink.ends_at <= time.monotonic():
                    self.end(sink)

    def close(self) -> None:
        """Keep nothing from now on."""
        self._closed.set()
        with self.lock:
            for sink in list(self._kept.values()):
                self.drop(sink)
                if sink.is_alone:
                    sink.is_gone = True

    def add(self, sink: KeptSink, chunks: Sequence[Chunk], *, is_last: bool) -> None:
        """Keep chunks of an answer, within the bounds; the caller has the lock."""
        if self._kept.get(sink.order.name) is not sink:
            return
        if not sink.may_keep(chunks):
            self.drop(sink)
            return
        sink.chunks.add(chunks)
        if is_last:
            sink.chunks.compress()
        self._count(sink)
        if sink.chunks.size > KEPT_BYTES:
            self.end(sink)
        while self._size > ALL_KEPT_BYTES and sink.order.name in self._kept:
            alone = (each for each in self._kept.values() if each.is_alone)
            self.end(next(alone, sink))

    def _count(self, sink: KeptSink) -> None:
        self._size += sink.chunks.size - sink.noted_size
        sink.noted_size = sink.chunks.size

    def end(self, sink: KeptSink) -> None:
        """Delete an answer, and cancel it if it has no front end."""
        self.drop(sink)
        if sink.is_alone:
            # Who looks in turn whether clients have gone ends it.
            sink.is_gone = True

    def drop(self, sink: KeptSink) -> None:
        """Delete what is kept of an answer."""
        if self._kept.get(sink.order.name) is sink:
            del self._kept[sink.order.name]
            self._size -= sink.noted_size
            sink.chunks = KeptChunks()


class KeptSink(ClientSink):
    """Sends the chunks of one request to a client as `ClientSink` does, and has them kept.

    Args:
        kept: keeps them.
        client: the front end.
        request_id: the front end's number for the request.
        order: how long they are kept, and for whom.
    """

    def __init__(
        self, kept: KeptAnswers, client: ClientConnection, request_id: int, order: Keep
    ) -> None:
        super().__init__(client, request_id)
        # An event that passes without a message of its own would not be kept.
        self.takes_events = False
        self._kept, self.order, self.pid = kept, order, client.pid
        self.chunks = KeptChunks()
        self.noted_size = self.chunks.size
        """Bytes that are counted for it."""
        self.ends_at = 0.0
        """When it is deleted, if no front end has come; seconds of a monotonic clock."""
        self._is_over = False
        self._error: LmiError | None = None

    @property
    def is_alone(self) -> bool:
        """Whether it has no front end."""
        return self.client is NOBODY

    def may_keep(self, chunks: Sequence[Chunk]) -> bool:
        """Tell whether these may be the next of a stream of events; others have no ids."""
        headers = getattr(chunks[0], "headers", None) if chunks and self.chunks.is_empty else None
        return headers is None or headers.get("content-type", "").startswith(_EVENTS)

    def store(self, chunks: list[Chunk], *, is_last: bool) -> None:
        """Take chunks, which leave when the client is flushed."""
        with self._kept.lock:
            self._is_over = is_last
            self._kept.add(self, chunks, is_last=is_last)
            super().store(chunks, is_last=is_last)

    def fail(self, error: LmiError) -> None:
        """End the answer with an error, which is kept as a part of it."""
        with self._kept.lock:
            self._is_over, self._error = True, error
            if self.is_gone or self.chunks.is_empty:
                self._kept.drop(self)
            client = self.client
            client.leave(self.number)
            if not self.is_gone:
                client.store([failure_of(self.number, error)])
        client.flush()

    def is_cancelled(self) -> bool:
        """Tell whether nobody wants the answer; a front end that has gone may come back."""
        return self.is_gone

    def be_alone(self) -> None:
        """Continue without a front end."""
        self.client.leave(self.number)
        self.client = NOBODY
        self.ends_at = time.monotonic() + self.order.seconds

    def move(self, client: ClientConnection, request_id: int) -> None:
        """Send all chunks to another client, and to that one what follows."""
        if not self.is_alone:
            before, number = self.client, self.number
            before.leave(number)
            error = MovedError("another front end has the answer")
            before.store([failure_of(number, error)])
        self.client, self.number, self.pid = client, request_id, client.pid
        messages: list[msg.ToClient] = [Rejoined(request_id, self.chunks.blocks())]
        if self._error is not None:
            messages.append(failure_of(request_id, self._error))
        if not self._is_over:
            client.enter(self, request_id)
        client.store(messages)


class _Nobody(ClientConnection):
    """Stands for the front end of an answer that has none."""

    def __init__(self) -> None:
        # It is never started.
        self.is_gone, self.keeps_ids = False, True

    def store(self, messages: Sequence[msg.ToClient]) -> None:
        """Do nothing: the chunks are kept."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def leave(self, request_id: int) -> None:
        """Do nothing."""


NOBODY: Final = _Nobody()
