"""Let other Triton models of this server use a model's workers.

A client sends what a stub sends to a worker, and gets what a worker sends. Its requests go through
the same admission as those of the model itself, and end when it leaves.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from lmi_backend.endpoint.address import endpoint_address, waiting_marks
from lmi_backend.errors import LmiError, WorkerError
from lmi_backend.generation import Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import failure_of
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, encode, receive
from lmi_backend.ipc.versions import Refusals
from lmi_backend.serving.request_state import DirectSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmi_backend.endpoint.state import StateView
    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.generation import Chunk
    from lmi_backend.schema.context import Context
    from lmi_backend.serving.lora import LoraManager
    from lmi_backend.serving.renewal import Renewal
    from lmi_backend.serving.service import Service

_log = logging.getLogger(__name__)

# An alias model looks for it every 0.2 s; the load of a model must not wait for one that hangs.
_GREETING_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.01
# For what is written and not yet on its way.
_LAST_SECONDS: Final = 2.0


class Endpoint:
    """Listens for clients of a model."""

    def __init__(
        self,
        model: ModelInfo,
        service: Service,
        lora_manager: LoraManager,
        context: Context,
        state: StateView,
        renewal: Renewal,
    ) -> None:
        self._state, self._renewal = state, renewal
        self._service, self._lora_manager, self._context = service, lora_manager, context
        self._model, self._address = model, endpoint_address(model.name)
        self._socket = socket.socket(socket.AF_UNIX)
        self._inode = 0
        self._clients: set[_Client] = set()
        self._refusals = Refusals(model.name)
        lora_manager.on_change = self._greet_all

    def open(self) -> None:
        """Start to listen, and wait for the clients that wait: they are ready when the model is."""
        # A server that was killed may have left one under the same process id.
        self._address.unlink(missing_ok=True)
        self._socket.bind(str(self._address))
        self._inode = self._address.stat().st_ino
        self._socket.listen()
        threading.Thread(target=self._accept, name="lmi-endpoint", daemon=True).start()
        end = time.monotonic() + _GREETING_SECONDS
        while waiting_marks(self._model.name) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Close every connection."""
        # A stub that was unloaded ends late: the next one may listen at this address already.
        with contextlib.suppress(FileNotFoundError):
            if self._address.stat().st_ino == self._inode:
                self._address.unlink()
        # Wakes accept(), which close() alone does not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for client in list(self._clients):
            client.finish(_LAST_SECONDS)
            client.close()

    def hang_up(self) -> None:
        """Leave every client without a word, and the address behind: the server has died."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for client in list(self._clients):
            client.close()

    def handle(self, message: msg.FromClient, client: _Client) -> None:
        """Start what a client asks for."""
        match message:
            case msg.Hello():
                self._check(message, client)
                client.keeps_ids = message.keeps_ids
                client.put(self._welcome())
            case msg.AskHealth():
                client.put(self._service.health())
            case msg.AskState(is_brief=True):
                client.put(msg.State(self._state.brief()))
            case msg.AskState(log_after=number):
                client.put(msg.State(self._state.values(log_after=number)))
            case msg.Abort(ids=request_ids):
                client.abort(request_ids)
            case msg.Drain(seconds=seconds):
                client.put(msg.Drained(self._service.drain(seconds)))
            case msg.RenewWorker(index=index, seconds=seconds):
                client.put(self._renewal.renew(index, seconds))
            case msg.Submit(id=request_id, requests=work, tenant=tenant):
                self._try(
                    client, request_id, lambda s: self._service.submit(work, s, tenant=tenant)
                )
            case msg.SubmitHttp(id=request_id, request=request, tenant=tenant):
                self._try(
                    client, request_id, lambda s: self._service.submit(request, s, tenant=tenant)
                )
            case msg.Manage(id=request_id, body=body):
                self._try(
                    client,
                    request_id,
                    lambda sink: self._lora_manager.handle(body, self._service, sink),
                )

    def _check(self, hello: msg.Hello, client: _Client) -> None:
        """Raise WorkerError, and tell the client why, if it is of another protocol."""
        if hello.protocol == msg.PROTOCOL:
            return
        reason = self._refusals.reason(hello)
        client.put(msg.Refused(reason))
        client.finish(_LAST_SECONDS)
        raise WorkerError(reason)

    def _greet_all(self) -> None:
        """Tell every client what has changed."""
        for client in list(self._clients):
            client.put(self._welcome())

    def _welcome(self) -> msg.Welcome:
        context = self._context
        adapters = list(context.adapters)
        return msg.Welcome(
            context.clients, context.is_custom, adapters, self._model, context.has_lora
        )

    def _try(self, client: _Client, request_id: int, start: Callable[[_ClientSink], None]) -> None:
        sink = _ClientSink(client, request_id)
        try:
            start(sink)
        except LmiError as error:
            self._service.refused(error)
            sink.fail(error)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            client = _Client(connection, self)
            self._clients.add(client)
            client.start()

    def forget(self, client: _Client) -> None:
        """Forget a client that has left."""
        self._clients.discard(client)


class _Client:
    """One connection: a thread that reads, and one that writes while its other end is behind.

    Otherwise who has something to send writes it: to wake a thread for it would cost more.
    """

    def __init__(self, connection: socket.socket, endpoint: Endpoint) -> None:
        self._socket, self._endpoint = connection, endpoint
        self._sinks: dict[int, _ClientSink] = {}
        self._outgoing: list[msg.ToClient] = []
        # A condition's own `with` is Python's, and for each chunk that is much.
        self._lock = threading.RLock()
        self._has_work = threading.Condition(self._lock)
        self._turn = threading.Lock()
        """Held by the thread that writes; who does not get it leaves its messages to that one."""
        self._rest = b""
        """What the socket did not take at once; the writing thread's, until it is gone."""
        self.is_gone = self.keeps_ids = False

    def start(self) -> None:
        for target in (self._read, self._write):
            threading.Thread(target=target, name="lmi-client", daemon=True).start()

    def put(self, *messages: msg.ToClient) -> None:
        """Queue messages, in their order."""
        self.store(messages)
        self.flush()

    def store(self, messages: Iterable[msg.ToClient]) -> None:
        """Keep messages until `flush`."""
        with self._lock:
            self._outgoing += messages

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

    def enter(self, sink: _ClientSink, request_id: int) -> None:
        self._sinks[request_id] = sink

    def leave(self, request_id: int) -> None:
        self._sinks.pop(request_id, None)

    def abort(self, request_ids: list[int]) -> None:
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
                    self._endpoint.handle(message, self)
        except (WorkerError, OSError) as error:
            # Also who only asks whether the stub lives, each second.
            _log.debug("a client of the endpoint has gone: %s", error)
        finally:
            self.close()
            self._socket.close()
            self._endpoint.forget(self)

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
                messages, self._outgoing = self._outgoing, []
                # Empty, it lets the others write again.
                self._rest = encode(messages) if messages else b""


class _ClientSink(DirectSink):
    """Sends the chunks of one request to a client, until the client aborts it or leaves."""

    request_id = ""

    def __init__(self, client: _Client, request_id: int) -> None:
        self._client, self._id = client, request_id
        self.flush, self.keeps_ids = client.flush, client.keeps_ids
        self.is_gone = False
        client.enter(self, request_id)

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        self.store(chunks, is_last=is_last)
        self._client.flush()

    def store(self, chunks: list[Chunk], *, is_last: bool) -> None:
        if is_last:
            self._client.leave(self._id)
        self._client.store([self._message(chunk) for chunk in chunks])

    def fail(self, error: LmiError) -> None:
        self._client.leave(self._id)
        self._client.put(failure_of(self._id, error))

    def is_cancelled(self) -> bool:
        """Tell whether the client has gone, at no cost."""
        return self.is_gone or self._client.is_gone

    def _message(self, chunk: Chunk) -> msg.Output | msg.HttpOutput:
        if isinstance(chunk, Delta):
            return msg.Output(self._id, chunk)
        return msg.HttpOutput(self._id, chunk)
