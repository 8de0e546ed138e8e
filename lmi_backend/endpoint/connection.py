"""The stub's end of one client's connection: a thread that reads, and chunks of answers out."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.endpoint.backlog import STILL_SECONDS, UNREAD, UNREAD_BYTES_IN_ALL, Backlog
from lmi_backend.errors import EngineError, LmiError, NotSentError, WorkerError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, Outbox, encode, receive
from lmi_backend.ipc.messages import failure_of
from lmi_backend.serving.request_state import DirectSink
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lmi_backend.generation import Chunk

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.01


class ClientConnection:
    """One connection: a thread that reads, and one that writes while its other end is behind.

    Otherwise who has something to send writes it: to wake a thread for it would cost more.

    Args:
        connection: closed in the end.
        share: returns how many bytes of all answers may wait for this client.
        buffer: called when the client has left, before its requests end; takes over some of them.
    """

    def __init__(
        self,
        connection: socket.socket,
        handle: Callable[[msg.FromClient, ClientConnection], None],
        forget: Callable[[ClientConnection], None],
        leave: Callable[[Iterable[ClientSink]], None] = lambda sinks: None,
        share: Callable[[], int] = lambda: UNREAD_BYTES_IN_ALL,
        buffer: Callable[[ClientConnection], None] = lambda client: None,
    ) -> None:
        self._socket, self._handle, self._forget = connection, handle, forget
        self._leave, self._share, self._buffer = leave, share, buffer
        self._sinks: dict[int, ClientSink] = {}
        self.backlog = Backlog()
        """What is not encoded yet; it is counted while the other end is behind."""
        self._lock = threading.RLock()
        self._turn = threading.Lock()
        """Held by the thread that sends; who does not get it leaves its messages to that one."""
        self._outbox = Outbox(connection, "the client", 0.0, self.flush)
        self.is_gone = self.keeps_ids = False

    def start(self) -> None:
        guarded_thread("lmi-client", self._read).start()

    @property
    def is_busy(self) -> bool:
        return bool(self._sinks)

    def put(self, *messages: msg.ToClient) -> None:
        self.store(messages)
        self.flush()

    def store(self, messages: Sequence[msg.ToClient]) -> None:
        """Keep messages until `flush`; end the requests that too much waits of."""
        with self._lock:
            self.backlog.messages += messages
            if self.backlog.is_counted:
                self._end_unread(messages)

    def _end_unread(self, messages: Sequence[msg.ToClient]) -> None:
        """Count messages, end the requests that too much waits of, and forget what does."""
        is_still = time.monotonic() - self._outbox.taken_at > STILL_SECONDS
        ended = self.backlog.count(messages, self._share(), self._owner_of, is_still=is_still)
        if not ended:
            return
        self._mark(ended)
        self.backlog.drop(ended)
        self.backlog.messages += [failure_of(each, EngineError(UNREAD)) for each in ended]

    def _owner_of(self, request_id: int) -> str:
        sink = self._sinks.get(request_id)
        return "" if sink is None else sink.owner

    def flush(self) -> None:
        """Let what was kept leave; never waits for the other end."""
        while self.backlog.messages and not self._outbox.unsent_bytes:
            if not self._turn.acquire(blocking=False):
                return
            try:
                self._send()
            finally:
                self._turn.release()

    def _send(self) -> None:
        # Since the caller looked, another may have sent, or not all of it.
        if self._outbox.unsent_bytes:
            return
        with self._lock:
            messages = self.backlog.next_frame()
        try:
            if messages:
                self._outbox.send(self._packed(messages))
        except NotSentError:
            self.close()
        except RuntimeError:
            _log.exception("a client is behind, and no thread can be had to write to it")
            self.close()
        if self._outbox.unsent_bytes:
            with self._lock:
                if not self.backlog.is_counted:
                    self._end_unread(self.backlog.messages)

    def _packed(self, messages: Sequence[msg.ToClient]) -> bytes:
        """Return the frame of messages; a part that cannot be packed fails its request only."""
        try:
            return encode(messages)
        except Exception:  # noqa: BLE001  what is another request's leaves
            return encode([packed for each in messages for packed in self._packable(each)])

    def _packable(self, message: msg.ToClient) -> list[msg.ToClient]:
        try:
            encode([message])
        except Exception:  # noqa: BLE001  it is one request's failure
            _log.exception("a %s for a client cannot be packed", type(message).__name__)
            if not isinstance(message, msg.Output | msg.Failure):
                return []
            self._mark([message.id])
            return [failure_of(message.id, EngineError("what it said cannot be packed"))]
        return [message]

    def finish(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.backlog.messages or self._outbox.unsent_bytes or self._turn.locked():
            if self.is_gone or time.monotonic() > end:
                return
            time.sleep(_POLL_SECONDS)

    def enter(self, sink: ClientSink, request_id: int) -> None:
        self._sinks[request_id] = sink

    def leave(self, request_id: int) -> ClientSink | None:
        return self._sinks.pop(request_id, None)

    def abort(self, request_ids: Iterable[int]) -> None:
        """End these requests: the client wants no more of them."""
        if sinks := self._mark(request_ids):
            self._leave(sinks)

    def _mark(self, request_ids: Iterable[int]) -> list[ClientSink]:
        """Take nothing more of some requests; the next reader of their sinks cancels them."""
        sinks = [sink for each in request_ids if (sink := self._sinks.get(each)) is not None]
        for sink in sinks:
            sink.is_gone = True
        return sinks

    def close(self) -> None:
        """End the connection and all requests that came through it."""
        self.is_gone = True
        self._outbox.close()
        self._buffer(self)
        self.abort(list(self._sinks))

    def _read(self) -> None:
        decoder: FrameDecoder[msg.FromClient] = FrameDecoder(msg.FromClient, limit=LARGEST_FRAME)
        # The system wakes who waits in recv() each time that the other end has read something.
        comes = select.poll()
        comes.register(self._socket, select.POLLIN)
        try:
            while True:
                comes.poll()
                # No name here: a request that was handled would stay while the next one is awaited.
                self._hear(receive(self._socket, decoder))
        except (WorkerError, OSError) as error:
            # Also who only asks whether the stub lives, each second.
            _log.debug("a client of the endpoint disconnected: %s", error)
        finally:
            self.close()
            self._socket.close()
            self._forget(self)

    def _hear(self, messages: Iterable[msg.FromClient]) -> None:
        for message in messages:
            self._handle(message, self)


class ClientSink(DirectSink):
    """Sends the chunks of one request to a client, until the client aborts it or leaves."""

    request_id = ""
    """See `Sink`."""

    def __init__(self, client: ClientConnection, request_id: int, owner: str = "") -> None:
        self.client: ClientConnection = client
        self.owner = owner
        self.number = request_id
        self.keeps_ids = self.takes_events = client.keeps_ids
        client.enter(self, request_id)

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        self.store(chunks, is_last=is_last)
        self.client.flush()

    def store(self, chunks: list[Chunk], *, is_last: bool) -> None:
        if not self.is_gone:
            self.client.store([msg.Output(self.number, chunk) for chunk in chunks])
        if is_last:
            self.client.leave(self.number)

    def fail(self, error: LmiError) -> None:
        """End the answer with an error, if its client still wants to know."""
        self.client.leave(self.number)
        if not self.is_gone:
            self.client.put(failure_of(self.number, error))

    def is_cancelled(self) -> bool:
        return self.is_gone or self.client.is_gone
