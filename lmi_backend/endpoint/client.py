"""An alias model: it takes requests in its own variant and uses the workers of another model."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from lmi_backend import __version__
from lmi_backend.endpoint.address import endpoint_address, waiting_mark
from lmi_backend.engine_config import Context, Identity, RequestLimits
from lmi_backend.errors import (
    ConnectionLostError,
    EngineDeadError,
    NotSentError,
    UnavailableError,
    WorkerError,
)
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.engine import Capabilities
from lmi_backend.ipc.frames import LARGEST_FRAME, Frame, FrameDecoder, Outbox, encode, receive
from lmi_backend.serving.admission import Limits
from lmi_backend.serving.service import Service
from lmi_backend.serving.workers import Workers
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.pool.pool import Listener
    from lmi_backend.serving.request_state import Sink

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.2
_UNREAD_SECONDS: Final = 30.0
"""Time after which a model that reads nothing of what it was sent counts as gone."""
_NEVER: Final = 1 << 31
"""Seconds."""
# The model that is shared has limits of its own; they count for its alias models too.
_LIMITS: Final = Limits(
    1 << 30,
    RequestLimits(
        queue_size=0,
        request_timeout=_NEVER,
        max_message_size=LARGEST_FRAME,
        migration_timeout=0,
    ),
)


class SharedWorkers(Workers):
    """The workers of the model `shares`, which are one worker here.

    That model counts and scales its workers, and has requests wait, itself.
    """

    identity = Identity()
    """The same for all: an answer is resumed in the shared model only."""

    def __init__(self, shares: str) -> None:
        self.name = shares
        self.context: Context | None = None
        """How bodies are read; None while the model is not there."""
        self._address = str(endpoint_address(shares))
        self._mark = waiting_mark(shares)
        self._outbox: Outbox | None = None
        self._closing = threading.Event()
        self._problem = "it is not loaded"

    def start(self, listener: Listener) -> Capabilities:
        """Start to look for the shared model, which may be loaded later."""
        self._mark.touch()
        guarded_thread("lmi-alias", partial(self._run, listener)).start()
        return Capabilities("shared", "", 0)

    def claim(self, width: int, choose: object) -> tuple[int, SharedWorkers]:
        self.check()
        return 0, self

    def capacity(self) -> int:
        """Return a number that is never reached: the shared model lets requests wait."""
        return _LIMITS.running

    def ready_in(self) -> float:
        """Return infinity where the shared model is gone; it has its own requests wait."""
        return math.inf if self.context is None else 0.0

    def check(self) -> Context:
        """Return the model's context. Raises UnavailableError: it is not there."""
        if self.context is None:
            raise UnavailableError(
                f"model {self.name}, whose workers this one shares: {self._problem}"
            )
        return self.context

    def send_frame(self, frame: Frame) -> None:
        outbox = self._outbox
        if outbox is None:
            raise ConnectionLostError(f"model {self.name}: {self._problem}")
        try:
            outbox.send(*frame)
        except NotSentError as error:
            # There is no other to send it to.
            raise ConnectionLostError(str(error)) from error

    def abort(self, index: int, request_ids: list[int]) -> None:
        with contextlib.suppress(ConnectionLostError):
            self.send_frame((encode([msg.Abort(request_ids)]),))

    def health(self) -> msg.Health:
        """Tell whether the shared model is there; it tells the rest itself."""
        is_there = self.context is not None
        problem = "" if is_there else f"model {self.name}: {self._problem}"
        return msg.Health(is_ready=is_there, problem=problem)

    def close(self) -> None:
        self._closing.set()
        self._mark.unlink(missing_ok=True)
        outbox = self._outbox
        if outbox is not None:
            outbox.close()

    def _run(self, listener: Listener) -> None:
        while not self._closing.is_set():
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    self._use(connection, listener)
            except Exception as error:
                # Whatever it was: what had been sent has no answer now.
                self._on_loss(error, listener)
                if not isinstance(error, WorkerError | OSError):
                    raise
            self._closing.wait(_RETRY_SECONDS)

    def _use(self, connection: socket.socket, listener: Listener) -> None:
        connection.connect(self._address)
        outbox = self._outbox = Outbox(connection, f"model {self.name}", _UNREAD_SECONDS)
        try:
            self._receive(connection, listener)
        finally:
            self._outbox = None
            outbox.close()

    def _receive(self, connection: socket.socket, listener: Listener) -> None:
        hello = msg.Hello(msg.PROTOCOL, os.getpid(), release=__version__)
        self.send_frame((encode([hello]),))
        decoder: FrameDecoder[msg.ToClient] = FrameDecoder(msg.ToClient, limit=LARGEST_FRAME)
        while True:
            messages = receive(connection, decoder)
            answers: list[msg.FromWorker] = []
            for message in messages:
                if isinstance(message, msg.Welcome):
                    self._on_welcome(message)
                elif isinstance(message, msg.Refused):
                    self._on_refusal(message.reason)
                elif isinstance(message, msg.Output | msg.Events | msg.Failure):
                    answers.append(message)
            listener.on_messages(answers)

    def _on_welcome(self, welcome: msg.Welcome) -> None:
        if self.context is None:
            _log.info("shares the workers of model %s", self.name)
        self.context = welcome.context
        self._mark.unlink(missing_ok=True)

    def _on_refusal(self, reason: str) -> None:
        """Note that the model is of another release; the next one of its name may not be."""
        if self._problem != reason:
            _log.error("model %s, whose workers this one shares: %s", self.name, reason)
        self._problem = reason
        self._mark.unlink(missing_ok=True)

    def _on_loss(self, error: Exception, listener: Listener) -> None:
        if self.context is None:
            return
        self.context = None
        self._problem = "it was unloaded, or its process died"
        if not self._closing.is_set():
            self._mark.touch()
            _log.warning("model %s, whose workers this one shares, is down: %s", self.name, error)
        listener.on_death(0, EngineDeadError(f"model {self.name}: {self._problem}"))


class AliasModel:
    def __init__(self, shares: str) -> None:
        self.workers = SharedWorkers(shares)
        self.service = Service(self.workers, _LIMITS)
        self.service.start()

    def context(self) -> Context:
        """Return how bodies are read now. Raises UnavailableError: the model is not there."""
        return self.workers.check()

    def change_adapter(self, body: Mapping[str, object], sink: Sink) -> None:
        self.service.manage(dict(body), sink)

    def close(self) -> None:
        self.service.close()
