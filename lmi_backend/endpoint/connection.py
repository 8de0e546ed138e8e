"""The stub's end of one client's connection: a thread that reads, and chunks of answers out."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.endpoint.backlog import (
    UNREAD,
    UNREAD_BYTES,
    memory_of,
    next_frame,
    unread,
    without,
)
from lmi_backend.errors import EngineError, LmiError, WorkerError
from lmi_backend.generation import Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import failure_of
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, encode, receive
from lmi_backend.serving.request_state import DirectSink

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
        handle: gets each message.
        forget: called when the client has left.
    """

    def __init__(
        self,
        connection: socket.socket,
        handle: Callable[[msg.FromClient, ClientConnection], None],
        forget: Callable[[ClientConnection], None],
    ) -> None:
        self._socket, self._handle, self._forget = connection, handle, forget
        self._sinks: dict[int, ClientSink] = {}
        self._outgoing: list[msg.ToClient] = []
        self._waiting_bytes = 0
        """Of what was stored since the other end is behind, or since that was looked through."""
        # A condition's own `with` is Python's, and for each chunk that is much.
        self._lock = threading.RLock()
        self._has_work = threading.Condition(self._lock)
        self._turn = threading.Lock()
        """Held by the thread that writes; who does not get it leaves its messages to that one."""
        self._rest = b""
        """What the socket did not take at once; the writing thread's, until it is gone."""
        self.is_gone = self.keeps_ids = False

    def start(self) -> None:
        """Begin to read."""
        for target in (self._read, self._write):
            threading.Thread(target=target, name="lmi-client", daemon=True).start()

    def put(self, *messages: msg.ToClient) -> None:
        """Queue messages, in their order."""
        self.store(messages)
        self.flush()

    def store(self, messages: Sequence[msg.ToClient]) -> None:
        """Keep messages until `flush`; end the requests that too much waits of."""
        with self._lock:
            self._outgoing += messages
            if self._rest:
                self._waiting_bytes += memory_of(messages)
                if self._waiting_bytes > UNREAD_BYTES:
                    self._end_unread()

    def _end_unread(self) -> None:
        """End the requests that too much waits of, and forget what does."""
        self._waiting_bytes = 0
        ended = unread(self._outgoing)
        if not ended:
            return
        self.abort(ended)
        failures = [failure_of(each, EngineError(UNREAD)) for each in ended]
        self._outgoing = [*without(self._outgoing, ended), *failures]

    def flush(self) -> None:
        """Let what was kept leave; never waits for the other end."""
        while self._outgoing and not self._rest and self._turn.acquire(blocking=False):
            try:
                self._send()
            finally:
                self._turn.release()

    def _send(self) -> None:
        with self._lock:
            # Since the caller looked, another may have written, or not all of it.
            if self._rest or not self._outgoing:
                return
            messages, self._outgoing = self._outgoing, []
        frame = encode(messages)
        sent = 0
        try:
            sent = self._socket.send(frame, socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if sent < len(frame):
            with self._has_work:
                self._rest = frame[sent:]
                self._has_work.notify()

    def finish(self, seconds: float) -> None:
        """Wait until all messages are sent, or for some seconds."""
        end = time.monotonic() + seconds
        while self._outgoing or self._rest or self._turn.locked():
            if self.is_gone or time.monotonic() > end:
                return
            time.sleep(_POLL_SECONDS)

    def enter(self, sink: ClientSink, request_id: int) -> None:
        """Know the sink of a request, by the client's number for it."""
        self._sinks[request_id] = sink

    def leave(self, request_id: int) -> None:
        """Forget the sink of a request that has ended."""
        self._sinks.pop(request_id, None)

    def abort(self, request_ids: Iterable[int]) -> None:
        """Note that the client wants no more of these requests."""
        for request_id in request_ids:
            sink = self._sinks.get(request_id)
            if sink is not None:
                sink.is_gone = True

    def close(self) -> None:
        """End the connection and all requests that came through it."""
        with self._has_work:
            self.is_gone = True
            self._has_work.notify_all()
        self.abort(list(self._sinks))
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        decoder: FrameDecoder[msg.FromClient] = FrameDecoder(msg.FromClient, limit=LARGEST_FRAME)
        try:
            while True:
                for message in receive(self._socket, decoder):
                    self._handle(message, self)
        except (WorkerError, OSError) as error:
            # Also who only asks whether the stub lives, each second.
            _log.debug("a client of the endpoint has gone: %s", error)
        finally:
            self.close()
            self._socket.close()
            self._forget(self)

    def _write(self) -> None:
        while True:
            with self._has_work:
                self._has_work.wait_for(lambda: self._rest or self.is_gone)
            if self.is_gone:
                return
            try:
                self._socket.sendall(self._rest)
            except OSError:
                self.close()
                return
            with self._lock:
                number = next_frame(self._outgoing)
                messages, self._outgoing = self._outgoing[:number], self._outgoing[number:]
                # Empty, it lets the others write again.
                self._rest = encode(messages) if messages else b""
                if not self._rest:
                    self._waiting_bytes = 0


class ClientSink(DirectSink):
    """Sends the chunks of one request to a client, until the client aborts it or leaves."""

    request_id = ""

    def __init__(self, client: ClientConnection, request_id: int) -> None:
        self.client: ClientConnection = client
        self.number, self.keeps_ids = request_id, client.keeps_ids
        self.is_gone = False
        client.enter(self, request_id)

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        """Take chunks, which leave at once."""
        self.store(chunks, is_last=is_last)
        self.client.flush()

    def store(self, chunks: list[Chunk], *, is_last: bool) -> None:
        """Take chunks, which leave when the client is flushed."""
        if is_last:
            self.client.leave(self.number)
        self.client.store([self._message(chunk) for chunk in chunks])

    def fail(self, error: LmiError) -> None:
        """End the answer with an error."""
        self.client.leave(self.number)
        self.client.put(failure_of(self.number, error))

    def is_cancelled(self) -> bool:
        """Tell whether the client has gone, at no cost."""
        return self.is_gone or self.client.is_gone

    def _message(self, chunk: Chunk) -> msg.Output | msg.HttpOutput:
        if isinstance(chunk, Delta):
            return msg.Output(self.number, chunk)
        return msg.HttpOutput(self.number, chunk)
