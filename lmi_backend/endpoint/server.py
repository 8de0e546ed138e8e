"""Let other Triton models of this server use a model's workers.

A client sends what a stub sends to a worker, and gets what a worker sends. Its requests go through
the same admission as those of the model itself, and end when it leaves.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lmi_backend.endpoint.address import endpoint_address, waiting_marks
from lmi_backend.endpoint.backlog import UNREAD_BYTES_IN_ALL
from lmi_backend.endpoint.buffered import BufferedAnswers
from lmi_backend.endpoint.connection import ClientConnection, ClientSink
from lmi_backend.errors import WorkerError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.handshake import difference
from lmi_backend.serving.new_requests import Sender
from lmi_backend.serving.request_state import FAULT, refuse
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.endpoint.state import StateView
    from lmi_backend.engine_config import Context

_log = logging.getLogger(__name__)

_ANSWERS: Final[dict[type[msg.FromClient], msg.ToClient]] = {
    msg.AskHealth: msg.Health(is_ready=False, problem=FAULT),
    msg.AskState: msg.State({}),
    msg.Drain: msg.Done(),
    msg.RenewWorker: msg.Done(problem=FAULT),
    msg.Find: msg.Found(),
}
"""What a client is sent that waits for an answer which could not be made."""
# An alias model looks for it every 0.2 s; the load of a model must not wait for one that hangs.
_WELCOME_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.01
# For what is written and not yet on its way.
_LAST_SECONDS: Final = 2.0


class Endpoint:
    def __init__(
        self, state: StateView, context: Context, renew: Callable[[int, float], msg.Done]
    ) -> None:
        self._state, self.context, self._renew = state, context, renew
        self.service, self.lora_manager = state.service, state.lora_manager
        self._model, self.address = state.model, endpoint_address(state.model.name)
        self.listener = socket.socket(socket.AF_UNIX)
        self._inode = 0
        self._is_closed = False
        self.clients: set[ClientConnection] = set()
        self.buffered = BufferedAnswers(self.service.leave)
        self._refused: set[int] = set()
        """Processes whose refusal was logged; they may try for as long as they live."""
        self.lora_manager.on_change = self._send_welcomes

    def open(self) -> None:
        """Start to listen, and wait for the clients that wait: they are ready when the model is."""
        # A server that was killed may have left one under the same process id.
        self.address.unlink(missing_ok=True)
        self.listener.bind(str(self.address))
        self._inode = self.address.stat().st_ino
        self.listener.listen()
        guarded_thread("lmi-endpoint", self._accept).start()
        self.lora_manager.threads.start()
        end = time.monotonic() + _WELCOME_SECONDS
        while waiting_marks(self._model.name) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        # A stub that was unloaded ends late: the next one may listen at this address already.
        with contextlib.suppress(FileNotFoundError):
            if self.address.stat().st_ino == self._inode:
                self.address.unlink()
        self.lora_manager.threads.stop()
        # Wakes accept(), which close() alone does not.
        self._is_closed = True
        self.buffered.close()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        end = time.monotonic() + _LAST_SECONDS
        for client in list(self.clients):
            client.finish(end - time.monotonic())
            client.close()

    def _handle(self, message: msg.FromClient, client: ClientConnection) -> None:
        """Start what a client requests; an error in it is its own failure.

        Raises:
            WorkerError: the connection must be closed.
        """
        try:
            self._take(message, client)
        except WorkerError:
            raise
        except Exception as error:
            _log.exception("a client's %s cannot be handled", type(message).__name__)
            if isinstance(message, msg.Hello):
                raise WorkerError(FAULT) from error
            answer = _ANSWERS.get(type(message))
            if answer is not None:
                client.put(answer)

    def _take(self, message: msg.FromClient, client: ClientConnection) -> None:
        match message:
            case msg.SubmitHttp(request=work) | msg.Submit(requests=work):
                self._submit(work, message, client)
            case msg.Hello():
                self._check(message, client)
                client.keeps_ids = message.keeps_ids
                client.put(self._welcome())
            case msg.AskHealth():
                client.put(self.service.health())
            case msg.AskState(log_after=number, is_brief=is_brief):
                state = self._state.brief() if is_brief else self._state.values(log_after=number)
                client.put(msg.State(state | {"buffered": self.buffered.counts()}))
            case msg.Abort(ids=request_ids):
                client.abort(request_ids)
            case msg.Drain(seconds=seconds):
                client.put(msg.Done(self.service.drain(seconds)))
            case msg.RenewWorker(index=index, seconds=seconds):
                client.put(self._renew(index, seconds))
            case msg.Manage(id=request_id, body=body):
                own = ClientSink(client, request_id)
                self._try(own, lambda: self.lora_manager.take(body, own))
            case msg.Rejoin() | msg.Left() | msg.Find():
                self.buffered.take(message, client)

    def _check(self, hello: msg.Hello, client: ClientConnection) -> None:
        """Raise WorkerError, and tell the client why, if it is of another protocol."""
        if hello.protocol == msg.PROTOCOL:
            return
        reason = difference(f"process {hello.pid}", hello)
        if hello.pid not in self._refused:
            self._refused.add(hello.pid)
            _log.error("a client of model %s is refused: %s", self._model.name, reason)
        client.put(msg.Refused(reason))
        client.finish(_LAST_SECONDS)
        raise WorkerError(reason)

    def _send_welcomes(self) -> None:
        for client in list(self.clients):
            client.put(self._welcome())

    def _welcome(self) -> msg.Welcome:
        context = replace(self.context, adapters=tuple(self.context.adapters))
        adapters = self.lora_manager.adapters.values()
        model = replace(self._model, adapters={each.name: each.digest for each in adapters})
        return msg.Welcome(context, model)

    def _submit(
        self, work: msg.Work, order: msg.Submit | msg.SubmitHttp, client: ClientConnection
    ) -> None:
        if order.buffering is None:
            sink = ClientSink(client, order.id, order.tenant)
        else:
            sink = self.buffered.sink(client, order, order.buffering)
        sink.request_id = order.name
        sender = Sender(order.tenant, order.session, order.promise)
        self._try(sink, lambda: self.service.submit(work, sink, sender))

    def _try(self, sink: ClientSink, start: Callable[[], None]) -> None:
        try:
            start()
        except Exception as error:  # noqa: BLE001  it is this request's failure
            what = f"request {sink.number} of a client cannot be read"
            refuse(error, sink, self.service.refused, what)

    def _accept(self) -> None:
        """Take connections until closed; what fails for want of descriptors is tried again."""
        while not self._is_closed:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                if self._is_closed:
                    return
                raise
            ways = (self._handle, self.clients.discard, self.service.leave, self._share)
            client = ClientConnection(connection, *ways, self.buffered.leave)
            self.clients.add(client)
            client.start()

    def _share(self) -> int:
        """Return how many bytes of answers may wait for each client that has requests."""
        num_busy = sum(client.is_busy for client in list(self.clients))
        return UNREAD_BYTES_IN_ALL // max(num_busy, 1)
