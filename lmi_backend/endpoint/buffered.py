"""The one log of the answers whose clients may reconnect, to any front end.

Who reconnects gets all of an answer from its beginning: only a front end knows which events of the
client's its chunks make, and which of them the client has.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.errors import HttpError, MovedError
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.chunk_log import ChunkLog
from lmi_backend.ipc.messages import NOT_BUFFERED, failure_of
from lmi_backend.json_text import UNREADABLE
from lmi_backend.shares import Shares
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
    """Sends the chunks of one request to a client as `ClientSink` does, and logs them."""

    def __init__(
        self,
        answers: BufferedAnswers,
        client: ClientConnection,
        request_id: int,
        owner: str,
        order: msg.Buffering,
        where: Continuation | None,
    ) -> None:
        super().__init__(client, request_id, owner)
        # An event that passes without a message of its own would not be logged.
        self.takes_events = False
        self.answers, self.order, self._where = answers, replace(order, block=b""), where
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
        with self.answers.lock:
            if self.is_over:
                return
            if not self.may_log(chunks):
                self.answers.drop(self)
            if self.order.key is not None and not self.response_id:
                self.answers.name(self, _response_id(chunks))
            if self.is_alone:
                self._num_tokens += sum(chunk.num_tokens for chunk in chunks)
            self._take([msg.Output(self.number, chunk) for chunk in chunks], is_last=is_last)
            if is_last:
                # It has the request, which may be larger than the answer that stays.
                self.state = None

    def fail(self, error: LmiError) -> None:
        """End the answer with an error, which is a part of it."""
        with self.answers.lock:
            if self.is_over:
                return
            if not self.is_wanted:
                self.answers.drop(self)
            self._take([failure_of(self.number, error)], is_last=True)
            self.state, client = None, self.client
        client.flush()

    def cancel(self) -> None:
        """End the answer with what there is: its client has cancelled it."""
        self.is_cancelled_by_client = True
        self._take([msg.Output(self.number, HttpChunk(is_last=True))], is_last=True)

    def _take(self, parts: Sequence[Logged], *, is_last: bool) -> None:
        self.is_over = is_last
        if not (self.is_alone or self.is_gone):
            self.client.store(parts)
        self.answers.add(self, parts)
        if is_last and self.is_alone:
            self.end_wait()
            self.start_window()

    def is_cancelled(self) -> bool:
        """Tell whether nobody wants the answer; a front end that disconnected may come back."""
        return self.is_gone

    @property
    def is_wanted(self) -> bool:
        """Whether a client may return for it: without an event nobody knows its name."""
        return not self.is_gone and self.answers.has(self) and not self.log.is_empty

    def be_alone(self) -> None:
        self.client.leave(self.number)
        self.is_alone, self._is_awaited, self._num_tokens = True, True, 0
        self.start_window()
        if self.is_over:
            self.end_wait()

    def start_window(self) -> None:
        if self.is_over or not self.order.is_lasting:
            self.ends_at = time.monotonic() + self.order.seconds

    def end_wait(self) -> None:
        """Let the front end whose client has left know that it need not wait for the end."""
        is_awaited, self._is_awaited = self._is_awaited, False
        if is_awaited and not self.client.is_gone:
            self.answers.send(self.client, msg.Ended(self.number, self._num_tokens))

    def move(self, client: ClientConnection, request_id: int) -> None:
        """Send all of it to another request, and to that one what follows."""
        self.end_wait()
        if not self.is_alone:
            self.client.leave(self.number)
            error = MovedError("another request has the answer")
            self.answers.send(self.client, failure_of(self.number, error))
        self.client, self.number, self.is_alone = client, request_id, False
        self.ends_at = math.inf
        client.enter(self, request_id)
        rejoined = msg.Rejoined(request_id, self.log.blocks(), self.order.num_events, self._where)
        self.answers.send(client, rejoined)


def _response_id(chunks: Sequence[Chunk]) -> str:
    data = b"".join(chunk.data for chunk in chunks if isinstance(chunk, HttpChunk))
    for line in data.split(b"\n") if _CREATED in data else ():
        if line.startswith(b"data:") and _CREATED in line:
            with contextlib.suppress(*UNREADABLE):
                return msgspec.json.decode(line[5:], type=_Created).response.id
    return ""


_log = logging.getLogger(__name__)

BUFFERED_BYTES: Final = 4 << 20
"""Of one answer. Above it the answer is buffered no longer."""
ALL_BUFFERED_BYTES: Final = 256 << 20
"""Of all answers of a model. Above it one is deleted of the key that holds most: the first without
a client, or else the largest."""
MOST_DELETED: Final = 10_000
"""Deleted responses that are remembered: an engine that stores them has no way to delete one."""
_LOOK_SECONDS: Final = 0.25


class BufferedAnswers:
    """The answers of a model that are buffered.

    One lock guards all of them: it is held where chunks come, and where a client leaves or comes
    back, so that no chunk is lost between two connections.

    Args:
        stop: cancels the requests of sinks that nobody wants.
    """

    def __init__(self, stop: Callable[[Iterable[ClientSink]], None]) -> None:
        self.lock = threading.RLock()
        self._stop = stop
        self.answers: dict[str, BufferedSink] = {}
        self.responses: dict[tuple[str, str], BufferedSink] = {}
        """By the key of the client, and the id."""
        self._deleted: dict[tuple[str, str], None] = {}
        """Responses that their clients deleted, the latest last."""
        self._sizes: Shares[BufferedSink] = Shares()
        self._behind: set[ClientConnection] = set()
        """What has to be flushed without the lock."""
        self._closed, self._is_watched = threading.Event(), False
        self._num_reconnected = self._num_lapsed = 0

    def counts(self) -> dict[str, int]:
        with self.lock:
            return {
                "answers": len(self.answers),
                "alone": sum(sink.is_alone for sink in self.answers.values()),
                "bytes": self._sizes.size,
                "reconnections": self._num_reconnected,
                "lapsed": self._num_lapsed,
            }

    def sink(
        self, client: ClientConnection, order: msg.Submit | msg.SubmitHttp, buffering: msg.Buffering
    ) -> ClientSink:
        own = (client, order.id, order.tenant)
        work = order.requests[0] if isinstance(order, msg.Submit) else order.request
        with self.lock:
            if (earlier := self.answers.get(buffering.name)) is not None:
                # Its front end has lost its connection, and has it generated again.
                self._end(earlier)
            sink = BufferedSink(self, *own, buffering, work.continuation)
            # Of an answer that resumes, all before must be in the request.
            if not self._closed.is_set() and not (work.continuation and not buffering.block):
                self.answers[buffering.name] = sink
                self._count(sink)
        if client.is_gone:
            # It left before the sink was known.
            self.leave(client)
        return sink

    def take(self, message: msg.ForBuffered, client: ClientConnection) -> None:
        stopped: list[ClientSink] = []
        with self.lock:
            match message:
                case msg.Rejoin():
                    self._rejoin(message, client)
                case msg.Left():
                    stopped = self._left(message, client)
                case msg.Find():
                    stopped = self._find(message, client)
        self._stop(stopped)
        self._flush()
        if client.is_gone:
            # It left before it had the answer.
            self.leave(client)

    def _rejoin(self, order: msg.Rejoin, client: ClientConnection) -> None:
        sink = self.answers.get(order.name)
        if sink is None or sink.order.owner != order.owner:
            error = HttpError(HTTPStatus.NOT_FOUND, NOT_BUFFERED)
            self.send(client, failure_of(order.id, error))
        else:
            self._num_reconnected += 1
            sink.move(client, order.id)
            self._count(sink)

    def _left(self, message: msg.Left, client: ClientConnection) -> list[ClientSink]:
        sink = client.leave(message.id)
        if sink is None:
            # It was moved, and its front end has been told.
            return []
        if isinstance(sink, BufferedSink):
            if message.returns and sink.is_wanted:
                self._be_alone([sink])
                return []
            self.drop(sink)
        sink.is_gone = True
        self.send(client, msg.Ended(message.id))
        return [sink]

    def _find(self, order: msg.Find, client: ClientConnection) -> list[ClientSink]:
        name = order.key, order.name
        if name in self._deleted:
            self.send(client, msg.Found("deleted"))
            return []
        if (sink := self.responses.get(name)) is None or not sink.is_wanted:
            self.send(client, msg.Found())
            return []
        is_running = not sink.is_over
        if order.verb == "cancel" and is_running and sink.order.is_lasting:
            sink.cancel()
            self._behind.add(sink.client)
        is_cancelled = sink.is_cancelled_by_client or (order.verb == "cancel" and is_running)
        blocks = sink.log.blocks() if sink.is_over else sink.log.blocks()[:1]
        ends = blocks[:1] + blocks[1:][-1:]
        reply = msg.Found("running" if is_running else "over", sink.order, ends)
        self.send(client, replace(reply, state="cancelled") if is_cancelled else reply)
        if order.verb == "delete" or (order.verb == "cancel" and not sink.order.is_lasting):
            self._end(sink)
        elif sink.is_alone:
            sink.start_window()
        if order.verb == "delete":
            self._deleted[name] = None
            if len(self._deleted) > MOST_DELETED:
                del self._deleted[next(iter(self._deleted))]
        return [sink] if is_running and order.verb != "read" else []

    def leave(self, client: ClientConnection) -> None:
        """Buffer the answers of a front end that disconnected, while clients may reconnect."""
        with self.lock:
            own = [
                sink
                for sink in self.answers.values()
                if sink.client is client and not sink.is_alone
            ]
            for sink in own:
                if not sink.is_wanted:
                    self.drop(sink)
                    sink.is_gone = True
            alone = [sink for sink in own if not sink.is_gone]
            self._be_alone(alone)
        if alone:
            _log.info("%d answers are buffered: their front end disconnected", len(alone))

    def _be_alone(self, sinks: Iterable[BufferedSink]) -> None:
        for sink in sinks:
            sink.be_alone()
            if not self._is_watched:
                self._is_watched = True
                guarded_thread("lmi-buffered", self._watch).start()

    def _watch(self) -> None:
        """Delete answers whose time is over, while any is without a client."""
        while not self._closed.wait(_LOOK_SECONDS):
            with self.lock:
                now = time.monotonic()
                alone = [sink for sink in self.answers.values() if sink.is_alone]
                for sink in [each for each in alone if each.ends_at <= now]:
                    self._end(sink)
                self._is_watched = bool(alone)
            self._flush()
            if not alone:
                return

    def close(self) -> None:
        self._closed.set()
        with self.lock:
            for sink in list(self.answers.values()):
                self.drop(sink)
                sink.is_gone = sink.is_gone or sink.is_alone

    def name(self, sink: BufferedSink, response_id: str) -> None:
        """Find an answer by the id of its response too; the caller has the lock."""
        if response_id and self.has(sink) and sink.order.key is not None:
            sink.response_id = response_id
            self.responses[sink.order.key, response_id] = sink

    def add(self, sink: BufferedSink, parts: Sequence[Logged]) -> None:
        """Log parts of an answer, within the bounds; the caller has the lock."""
        if not self.has(sink):
            return
        sink.log.add(parts)
        if sink.is_over:
            sink.log.compress()
        self._count(sink)
        if sink.log.size > BUFFERED_BYTES:
            self._end(sink)
        while self._sizes.size > ALL_BUFFERED_BYTES:
            of_one = self._sizes.largest_owner()
            alone = (each for each in of_one if each.is_alone)
            self._end(next(alone, None) or max(of_one, key=self._sizes.of))

    def _count(self, sink: BufferedSink) -> None:
        if self.has(sink):
            self._sizes.add(sink, sink.log.size - self._sizes.of(sink), sink.owner)

    def send(self, client: ClientConnection, message: msg.ToClient) -> None:
        """Have a client get a message; the caller has the lock."""
        client.store([message])
        self._behind.add(client)

    def _flush(self) -> None:
        """Let what was stored leave, without the lock: where that fails, requests end."""
        with self.lock:
            behind, self._behind = self._behind, set()
        for client in behind:
            client.flush()

    def _end(self, sink: BufferedSink) -> None:
        """Delete an answer, and cancel it if it has no client."""
        self.drop(sink)
        self._num_lapsed += not sink.is_over
        if sink.is_alone and not sink.is_over:
            # Who looks in turn whether clients have left ends it.
            sink.is_gone = True
            sink.end_wait()

    def drop(self, sink: BufferedSink) -> None:
        if self.has(sink):
            del self.answers[sink.order.name]
            self.responses.pop((sink.order.key or "", sink.response_id), None)
            self._sizes.forget(sink)
            sink.log = ChunkLog()

    def has(self, sink: BufferedSink) -> bool:
        return self.answers.get(sink.order.name) is sink
