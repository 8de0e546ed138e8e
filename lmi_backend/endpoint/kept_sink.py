"""Where the chunks of one answer go that is kept: to its front end, while it has one."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.errors import CancelledError, MovedError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import failure_of
from lmi_backend.ipc.kept_chunks import KeptChunks
from lmi_backend.ipc.rejoining import Keep, Moved, Rejoined
from lmi_backend.serving.cancellation import LEFT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.endpoint.kept import KeptAnswers
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk

_EVENTS: Final = "text/event-stream"


class KeptSink(ClientSink):
    """Sends the chunks of one request to a client as `ClientSink` does, and has them kept.

    Args:
        kept: keeps them.
        client: the front end.
        request_id: the front end's number for the request.
        owner: on whose behalf the request is.
        order: how long they are kept, and for whom.
    """

    def __init__(
        self,
        kept: KeptAnswers,
        client: ClientConnection,
        request_id: int,
        owner: str,
        order: Keep,
    ) -> None:
        super().__init__(client, request_id, owner)
        # An event that passes without a message of its own would not be kept.
        self.takes_events = False
        self._kept, self.order, self.pid = kept, replace(order, before=None), client.pid
        self.chunks = KeptChunks(order.before)
        self.ends_at = 0.0
        """When it is deleted, if no front end has come; seconds of a monotonic clock."""
        self._is_over = self.is_cancelled_by_client = False
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
            if not self.is_cancelled_by_client:
                self._is_over = is_last
                self._kept.add(self, chunks, is_last=is_last)
                self._start_time()
            super().store(chunks, is_last=is_last)

    def fail(self, error: LmiError) -> None:
        """End the answer with an error, which is kept as a part of it."""
        with self._kept.lock:
            self._is_over, self._error = True, error
            if not self.is_wanted:
                self._kept.drop(self)
            self._start_time()
            client = self.client
            client.leave(self.number)
            if not self.is_gone:
                client.store([failure_of(self.number, error)])
        client.flush()

    def is_cancelled(self) -> bool:
        """Tell whether nobody wants the answer; a front end that has gone may come back."""
        return self.is_gone

    @property
    def is_wanted(self) -> bool:
        """Whether a client may return for it: without an event nobody knows its name."""
        return not self.chunks.is_empty and (self.is_cancelled_by_client or not self.is_gone)

    def cancel(self) -> None:
        """Keep what there is, and nothing more: its client has cancelled it."""
        if not self._is_over:
            self._is_over = self.is_cancelled_by_client = True
            self._error = CancelledError(LEFT)

    def be_alone(self) -> None:
        """Continue without a front end."""
        self.client.leave(self.number)
        self.client = NOBODY
        self.ends_at = math.inf
        self._start_time()

    def _start_time(self) -> None:
        """Begin the time that it is kept without a front end, once it has begun."""
        if math.isinf(self.ends_at) and (self._is_over or not self.order.is_lasting):
            self.ends_at = time.monotonic() + self.order.seconds

    def move(self, client: ClientConnection, request_id: int) -> None:
        """Send all chunks to another client, and to that one what follows."""
        if not self.is_alone:
            before, number = self.client, self.number
            before.leave(number)
            error = MovedError("another front end has the answer")
            before.store([failure_of(number, error)])
            if before.pid != client.pid:
                # It may have all of the answer, which is no more its own.
                before.store([Moved(self.order.name)])
        self.client, self.number, self.pid = client, request_id, client.pid
        messages: list[msg.ToClient] = [
            Rejoined(request_id, self.chunks.blocks(), self.chunks.before)
        ]
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
