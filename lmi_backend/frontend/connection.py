"""The front end's end of one model's endpoint: requests out, chunks of their answers back."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from lmi_backend import __version__
from lmi_backend.engine_config import ModelInfo
from lmi_backend.errors import (
    EngineDeadError,
    EngineError,
    HttpError,
    UnavailableError,
    WorkerError,
)
from lmi_backend.frontend.answer import Answer, Unread
from lmi_backend.frontend.bodies import FREE_BYTES
from lmi_backend.generation import HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import rows
from lmi_backend.ipc.failures import error_of
from lmi_backend.ipc.frames import LARGEST_FRAME, CheckedEncoder, FrameDecoder, encode
from lmi_backend.serving.migration import Trials, blame, cause_of_death, refusal
from lmi_backend.serving.progress import Progress, may_go_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.generation import GenerateRequest

_log = logging.getLogger(__name__)
_Said = TypeVar("_Said")

UNSENT_BYTES: Final = 64 << 20
"""Of requests that a model's process has not read: it does not answer, and is ended soon."""
GONE: Final = "the model was unloaded, or its process died"


class ModelConnection(asyncio.Protocol):
    """A connection to a model's endpoint.

    Args:
        on_welcome: called with each `Welcome`, the first and those that tell of a change.
        on_lost: called once, when the model has gone, with the answers that may go on.
        unread: counts what the clients of all models have not read.
    """

    def __init__(
        self,
        on_welcome: Callable[[msg.Welcome], None],
        on_lost: Callable[[list[Answer]], None],
        unread: Unread | None = None,
    ) -> None:
        self._on_welcome, self._on_lost = on_welcome, on_lost
        self.unread = unread or Unread()
        self.model = ModelInfo()
        """What the model is; set by its first `Welcome`."""
        self.refusal = ""
        """Why the model does not speak to this process; empty where it does."""
        self._transport: asyncio.Transport | None = None
        self._decoder: FrameDecoder[msg.ToClient] = FrameDecoder(msg.ToClient, limit=LARGEST_FRAME)
        self._encoder = CheckedEncoder(msg.FromClient)
        self._answers: dict[int, Answer] = {}
        self._trials: Trials[Answer] = Trials()
        # In the order of the questions, which is that of the answers.
        self._health: list[asyncio.Future[msg.Health]] = []
        self._states: list[asyncio.Future[msg.State]] = []
        self._ids = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the endpoint."""
        # uvloop's is not a subclass.
        self._transport = cast("asyncio.Transport", transport)
        hello = msg.Hello(msg.PROTOCOL, os.getpid(), keeps_ids=True, release=__version__)
        self.send(hello)

    def data_received(self, data: bytes) -> None:
        """Hand each message to the request it belongs to."""
        try:
            messages = self._decoder.feed(data)
        except WorkerError as error:
            _log.warning("an endpoint cannot be understood: %s", error)
            self.close()
            return
        for message in messages:
            try:
                if isinstance(message, msg.Events):
                    self._take_events(message)
                else:
                    self._take(message)
            except Exception:  # noqa: BLE001  what is raised here ends the connection
                _log.exception("a message of model %s failed", self.model.name)

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on the answers that may go on; fail what else is open."""
        self._transport = None
        error = EngineDeadError(GONE)
        answers, self._answers = list(self._answers.values()), {}
        left = [answer for answer in answers if not self._refuse(answer, error)]
        if (cause := cause_of_death(left)) is not None:
            cause.fail(blame(error, "the model's process"))
            left.remove(cause)
        left += self._trials.clear()
        asked: list[asyncio.Future[Any]] = [*self._health, *self._states]
        for waiting in asked:
            if not waiting.done():
                waiting.set_exception(error)
        try:
            self._on_lost(left)
        except Exception:
            for answer in left:
                answer.fail(error)
            raise

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return len(self._answers)

    def submit(self, work: tuple[GenerateRequest, ...] | HttpRequest, tenant: str) -> Answer:
        """Send a request.

        Raises:
            UnavailableError: the model has gone, or does not read.
            HttpError: a value of the request cannot be sent (400).
        """
        if isinstance(work, HttpRequest):
            return self._start(lambda number: msg.SubmitHttp(number, work, tenant))
        return self._start(lambda number: msg.Submit(number, work, tenant))

    def resume(self, answer: Answer) -> None:
        """Ask for the rest of an answer that another connection has begun.

        One that its process may have died of is asked for when no other such one is.
        """
        if self._trials.take(answer):
            self._try_next()
        else:
            self._move_here(answer)

    def proved(self, answer: Answer) -> None:
        """Note that something came of an answer that may be fatal, or that it has ended."""
        if self._trials.end(answer):
            self._try_next()

    def _try_next(self) -> None:
        while (answer := self._trials.next()) is not None:
            if not answer.is_over:
                self._move_here(answer)
                return
            # Its client has left.
            self._trials.end(answer)

    def _move_here(self, answer: Answer) -> None:
        number = next(self._ids)
        self._answers[number] = answer
        try:
            answer.move(self, number)
        except Exception as error:  # noqa: BLE001  others move after it
            self._fail(answer, error)

    def _refuse(self, answer: Answer, error: EngineDeadError) -> bool:
        """Fail an answer that cannot go on; return whether it was."""
        limit = self.model.migration_limit if self.model.return_seconds else 0
        refused = refusal(answer.progress, limit, error)
        if refused is not None:
            answer.fail(refused)
        return refused is not None

    def manage(self, body: dict[str, object]) -> Answer:
        """Send a request about LoRA adapters; raises like `submit`."""
        return self._start(lambda number: msg.Manage(number, body))

    async def health(self) -> msg.Health:
        """Ask whether the model takes requests; raises like `submit`."""
        return await self._ask(msg.AskHealth(), self._health)

    async def state(self, log_after: int = -1) -> dict[str, Any]:
        """Ask for all that people look at (`endpoint/state.py`); raises like `submit`."""
        return await self._state(msg.AskState(log_after))

    async def brief_state(self) -> dict[str, Any]:
        """Ask for what changes with each request; raises like `submit`."""
        return await self._state(msg.AskState(is_brief=True))

    async def _state(self, message: msg.AskState) -> dict[str, Any]:
        values = (await self._ask(message, self._states)).values
        if not values:
            raise UnavailableError("the model cannot say how it is; its log has the reason")
        return values

    def send(self, message: msg.FromClient) -> None:
        """Send a message; nothing happens when the model has gone."""
        if self._transport is not None:
            self._transport.write(encode([message]))

    def forget(self, request_id: int) -> bool:
        """Forget a request; return whether it was open."""
        return self._pop(request_id) is not None

    def _pop(self, request_id: int) -> Answer | None:
        answer = self._answers.pop(request_id, None)
        if answer is not None:
            self.proved(answer)
        return answer

    def close(self) -> None:
        """Leave; what is open fails."""
        self.model = ModelInfo()
        if self._transport is not None:
            self._transport.close()

    async def _ask(self, message: msg.FromClient, asked: list[asyncio.Future[_Said]]) -> _Said:
        if self._transport is None:
            raise UnavailableError(GONE)
        waiting: asyncio.Future[_Said] = asyncio.get_running_loop().create_future()
        asked.append(waiting)
        self.send(message)
        return await waiting

    def _start(self, message: Callable[[int], msg.FromClient]) -> Answer:
        if self._transport is None:
            raise UnavailableError(GONE)
        number = next(self._ids)
        order = message(number)
        try:
            frame = self._encoder.encode([order])
        except ValueError as error:
            # The stub cannot read such a frame, and would close the connection.
            raise HttpError(400, f"the request cannot be sent to the model: {error}") from error
        # Small requests pass: large ones of some clients must not cost others theirs.
        is_full = self._transport.get_write_buffer_size() > UNSENT_BYTES
        if is_full and len(frame) > FREE_BYTES:
            raise UnavailableError(f"the model does not read: {UNSENT_BYTES >> 20} MiB wait for it")
        keeps = self.model.return_seconds > 0
        progress = Progress(order, 0) if keeps and may_go_on(order) else None
        answer = Answer(self, number, progress)
        self._answers[number] = answer
        self._transport.write(frame)
        return answer

    def _take_events(self, events: msg.Events) -> None:
        for number, data, token_ids in rows(events):
            if (answer := self._answers.get(number)) is not None:
                try:
                    answer.put_event(data, token_ids)
                except Exception as error:  # noqa: BLE001  all answers come on this connection
                    self._fail(answer, error)

    def _fail(self, answer: Answer, error: Exception) -> None:
        """End one answer that this process cannot send on."""
        _log.error("an answer of model %s failed", self.model.name, exc_info=error)
        answer.fail(EngineError("the answer could not be sent on; the log says why"))
        answer.abort()

    def _take(self, message: msg.ToClient) -> None:
        match message:
            case msg.HttpOutput() | msg.Output():
                if (answer := self._answers.get(message.id)) is not None:
                    try:
                        answer.put(message.chunk)
                    except Exception as error:  # noqa: BLE001  all answers come on this connection
                        self._fail(answer, error)
            case msg.Failure():
                if (answer := self._pop(message.id)) is not None:
                    answer.fail(error_of(message))
            case msg.Welcome():
                self.model = message.model
                self._on_welcome(message)
            case msg.Refused():
                self.refusal = message.reason
            case msg.Health():
                _answer(self._health, message)
            case msg.State():
                _answer(self._states, message)
            case _:
                pass


def _answer(asked: list[asyncio.Future[_Said]], said: _Said) -> None:
    """Hand an answer to who asked first, if it still waits."""
    if asked and not (waiting := asked.pop(0)).done():
        waiting.set_result(said)
