"""Where the parts of a buffered answer go: into its log, and to its client while it has one."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.errors import MovedError
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.buffered import Buffering, Ended, Rejoined
from lmi_backend.ipc.chunk_log import ChunkLog, message_of
from lmi_backend.ipc.failures import failure_of
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.endpoint.buffered import BufferedAnswers
    from lmi_backend.errors import LmiError
    from lmi_backend.generation import Chunk, Continuation
    from lmi_backend.ipc.chunk_log import Logged

_EVENTS: Final = "text/event-stream"
_CREATED: Final = b"response.created"


class _Response(msgspec.Struct):
    id: str


class _Created(msgspec.Struct):
    response: _Response


class BufferedSink(ClientSink):
    """Sends the chunks of one request to a client as `ClientSink` does, and logs them.

    Args:
        answers: has its log.
        client: the front end.
        request_id: the front end's number for the request.
        owner: on whose behalf the request is.
        order: for how long the answer is buffered, and for whom.
        where: where the model resumes it, if it does.
    """

    def __init__(
        self,
        answers: BufferedAnswers,
        client: ClientConnection,
        request_id: int,
        owner: str,
        order: Buffering,
        where: Continuation | None,
    ) -> None:
        super().__init__(client, request_id, owner)
        # An event that passes without a message of its own would not be logged.
        self.takes_events = False
        self._answers, self.order, self._where = answers, replace(order, block=b""), where
        self.log = ChunkLog(order.block)
        self.response_id = ""
        """Of a response whose first event has come."""
        self.is_over = self.is_cancelled_by_client = self.is_alone = False
        """The last one: whether it has no client."""
        self.ends_at = math.inf
        """When it is deleted, if it is alone then; seconds of a monotonic clock."""
        self._is_awaited, self._num_tokens = False, 0
        """Whether its front end waits for its end, and what came since it is alone."""

    def may_log(self, chunks: Sequence[Chunk]) -> bool:
        """Tell whether these may be the next of a stream of events; others have no ids."""
        headers = getattr(chunks[0], "headers", None) if chunks and self.log.is_empty else None
        return headers is None or headers.get("content-type", "").startswith(_EVENTS)

    def store(self, chunks: list[Chunk], *, is_last: bool) -> None:
        """Take chunks, which leave when the client is flushed."""
        with self._answers.lock:
            if self.is_over:
                return
            if not self.may_log(chunks):
                self._answers.drop(self)
            if self.order.key is not None and not self.response_id:
                self._answers.name(self, _response_id(chunks))
            if self.is_alone:
                self._num_tokens += sum(chunk.num_tokens for chunk in chunks)
            self._take([message_of(self.number, chunk) for chunk in chunks], is_last=is_last)
            if is_last:
                # It has the request, which may be larger than the answer that stays.
                self.state = None

    def fail(self, error: LmiError) -> None:
        """End the answer with an error, which is a part of it."""
        with self._answers.lock:
            if self.is_over:
                return
            if not self.is_wanted:
                self._answers.drop(self)
            self._take([failure_of(self.number, error)], is_last=True)
            self.state, client = None, self.client
        client.flush()

    def cancel(self) -> None:
        """End the answer with what there is: its client has cancelled it."""
        self.is_cancelled_by_client = True
        self._take([msg.HttpOutput(self.number, HttpChunk(is_last=True))], is_last=True)

    def _take(self, parts: Sequence[Logged], *, is_last: bool) -> None:
        self.is_over = is_last
        if not (self.is_alone or self.is_gone):
            self.client.store(parts)
        self._answers.add(self, parts)
        if is_last and self.is_alone:
            self.end_wait()
            self.start_window()

    def is_cancelled(self) -> bool:
        """Tell whether nobody wants the answer; a front end that has gone may come back."""
        return self.is_gone

    @property
    def is_wanted(self) -> bool:
        """Whether a client may return for it: without an event nobody knows its name."""
        return not self.is_gone and self._answers.has(self) and not self.log.is_empty

    def be_alone(self) -> None:
        """Continue without a client."""
        self.client.leave(self.number)
        self.is_alone, self._is_awaited, self._num_tokens = True, True, 0
        self.start_window()
        if self.is_over:
            self.end_wait()

    def start_window(self) -> None:
        """Begin the time that it is buffered without a client."""
        if self.is_over or not self.order.is_lasting:
            self.ends_at = time.monotonic() + self.order.seconds

    def end_wait(self) -> None:
        """Let the front end whose client has left know that it need not wait for the end."""
        is_awaited, self._is_awaited = self._is_awaited, False
        if is_awaited and not self.client.is_gone:
            self._answers.send(self.client, Ended(self.number, self._num_tokens))

    def move(self, client: ClientConnection, request_id: int) -> None:
        """Send all of it to another request, and to that one what follows."""
        self.end_wait()
        if not self.is_alone:
            self.client.leave(self.number)
            error = MovedError("another request has the answer")
            self._answers.send(self.client, failure_of(self.number, error))
        self.client, self.number, self.is_alone = client, request_id, False
        self.ends_at = math.inf
        client.enter(self, request_id)
        rejoined = Rejoined(request_id, self.log.blocks(), self.order.num_events, self._where)
        self._answers.send(client, rejoined)


def _response_id(chunks: Sequence[Chunk]) -> str:
    """Return the id of the response that some chunks begin; empty if they begin none."""
    data = b"".join(chunk.data for chunk in chunks if isinstance(chunk, HttpChunk))
    for line in data.split(b"\n") if _CREATED in data else ():
        if line.startswith(b"data:") and _CREATED in line:
            with contextlib.suppress(*UNREADABLE):
                return msgspec.json.decode(line[5:], type=_Created).response.id
    return ""
