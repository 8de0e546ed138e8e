"""The front end's end of one model's endpoint: requests out, chunks of their answers back."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

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
from lmi_backend.generation import HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import (
    LARGEST_FRAME,
    CheckedEncoder,
    Frame,
    FrameDecoder,
    encode_request,
)
from lmi_backend.ipc.messages import Buffering, Ended, Find, Found, Left, Rejoin, Rejoined, error_of
from lmi_backend.resume.progress import resumed
from lmi_backend.resume.resumption import Resumption
from lmi_backend.tokenization import check_characters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lmi_backend.resume.progress import Progress


Later: TypeAlias = Callable[[Callable[[], None]], object]


class BatchedTransport:
    """Keeps what one turn of the event loop writes, and writes it together.

    Requests come in bursts, as the answers of one step end together. With a write for each, front
    end, stub and worker would each take a system call and a wake-up for it.

    Args:
        later: calls a function at the end of the turn, as an event loop's `call_soon` does.
    """

    def __init__(self, transport: asyncio.Transport, later: Later) -> None:
        self._transport, self._later = transport, later
        self._pieces: list[bytes] = []

    def write(self, frame: Frame) -> None:
        """Write at the end of this turn; nothing is copied."""
        is_first = not self._pieces
        self._pieces += frame
        if is_first:
            self._later(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        # uvloop raises where the model is down meanwhile; what was to leave fails with the rest.
        if not pieces or self._transport.is_closing():
            return
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)


_Reply = TypeVar("_Reply")
ASK_SECONDS: Final = 2.0
"""Time in which a model says how it is."""


class ModelRequests:
    """Requests about a model on its connection; those of a kind are answered in their order.

    Args:
        send: sends a message; it raises UnavailableError where the model is down.
    """

    def __init__(self, send: Callable[[msg.FromClient], None]) -> None:
        self._send = send
        self._waiting: defaultdict[type, list[asyncio.Future[Any]]] = defaultdict(list)
        """By the kind of the answer."""

    async def health(self) -> msg.Health:
        """Return whether the model accepts requests. Raises UnavailableError: it does not say."""
        return await self._ask(msg.AskHealth(), msg.Health)

    async def state(self, log_after: int = -1, *, is_brief: bool = False) -> dict[str, Any]:
        """Return all that people look at (`endpoint/state.py`); raises like `health`.

        Args:
            is_brief: whether only what changes with each request is wanted.
        """
        values = (await self._ask(msg.AskState(log_after, is_brief), msg.State)).values
        if not values:
            raise UnavailableError("the model cannot say how it is; its log has the reason")
        return values

    async def find(self, search: Find) -> Found:
        """Return what is buffered of a response, if it is; raises like `health`."""
        return await self._ask(search, Found)

    def take(self, message: msg.ToClient) -> None:
        """Hand an answer to the first caller that waits for one of its kind, if it still waits."""
        futures = self._waiting[type(message)]
        if futures and not (waiting := futures.pop(0)).done():
            waiting.set_result(message)

    def fail(self, error: Exception) -> None:
        for waiting in chain.from_iterable(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(error)

    async def _ask(self, message: msg.FromClient, kind: type[_Reply]) -> _Reply:
        self._send(message)
        waiting: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._waiting[kind].append(waiting)
        try:
            return await asyncio.wait_for(waiting, ASK_SECONDS)
        except asyncio.TimeoutError:
            raise UnavailableError("its process does not answer") from None


_log = logging.getLogger(__name__)

GONE: Final = "the model was unloaded, or its process died"


class ModelConnection(asyncio.Protocol):
    """A connection to a model's endpoint.

    Args:
        on_welcome: called with each `Welcome`, the first and those after a change.
        on_lost: called once, when the model is down, with the answers that may resume.
        unread: counts what the clients of all models have not read.
        later: an event loop's `call_soon`: requests of one turn leave together.
    """

    def __init__(
        self,
        on_welcome: Callable[[msg.Welcome], None],
        on_lost: Callable[[list[Answer]], None],
        unread: Unread | None = None,
        later: Later = lambda function: function(),
    ) -> None:
        self._on_welcome, self._on_lost, self._later = on_welcome, on_lost, later
        self.unread = unread or Unread()
        self.model = ModelInfo()
        """What the model is; set by its first `Welcome`."""
        self.refusal = ""
        """Why the model does not speak to this process; empty where it does."""
        self.has_answered = asyncio.Event()
        self._transport: BatchedTransport | None = None
        self._decoder: FrameDecoder[msg.ToClient] = FrameDecoder(msg.ToClient, limit=LARGEST_FRAME)
        self._encoder = CheckedEncoder(msg.FromClient)
        self.answers: dict[int, Answer] = {}
        self._orders: dict[int, msg.Submit | msg.SubmitHttp] = {}
        """What the answers want that are requested again, until these begin."""
        self._left: dict[int, Callable[[int], object]] = {}
        """What is called when answers are over whose clients have left."""
        self._resumption: Resumption[Answer] = Resumption("the model's process", 0, 0)
        self.requests = ModelRequests(self._request)
        self._ids = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is not a subclass.
        self._transport = BatchedTransport(cast("asyncio.Transport", transport), self._later)
        self.send(msg.Hello(msg.PROTOCOL, os.getpid(), keeps_ids=True, release=__version__))

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._decoder.feed(data)
        except WorkerError as error:
            _log.warning("an endpoint cannot be understood: %s", error)
            self.close()
            return
        self._hear(messages)

    def _hear(self, messages: Iterable[msg.ToClient]) -> None:
        for message in messages:
            try:
                if isinstance(message, msg.Events):
                    self._take_events(message)
                else:
                    self._take(message)
            except Exception:  # noqa: BLE001  what is raised here ends the connection
                _log.exception("a message of model %s failed", self.model.name)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.has_answered.set()
        error = EngineDeadError(GONE)
        for number in list(self._left):
            self._end(number)
        answers, self.answers = list(self.answers.values()), {}
        left = []
        for answer, refused in zip(answers, self._resumption.refusals(answers, error), strict=True):
            if refused is None:
                left.append(answer)
            else:
                answer.fail(refused)
        left += self._resumption.clear()
        self.requests.fail(error)
        try:
            self._on_lost(left)
        except Exception:
            for answer in left:
                answer.fail(error)
            raise

    @property
    def num_open(self) -> int:
        return len(self.answers)

    def submit(
        self,
        work: msg.Work,
        tenant: str,
        buffering: Buffering | None = None,
        name: str = "",
        session: str = "",
        promise: tuple[int, int] = (0, 0),
    ) -> Answer:
        """Send a request, whose answer may be buffered, and which logs call by its name.

        Raises:
            UnavailableError: the model is down, or does not read.
            HttpError: a value of the request cannot be sent (400).
            RequestError: a prompt has more characters than the model's tokens can have.
        """
        sent = tenant, buffering, name, session, promise
        if isinstance(work, HttpRequest):
            return self._start(lambda number: msg.SubmitHttp(number, work, *sent), tenant)
        for request in work:
            if request.sampling.truncate_prompt_tokens is None and isinstance(request.prompt, str):
                bounds = self.model.max_model_len, self.model.longest_token
                check_characters(len(request.prompt), *bounds, field="prompt")
        return self._start(lambda number: msg.Submit(number, work, *sent), tenant)

    def rejoin(self, order: Buffering, work: msg.Work | None = None, tenant: str = "") -> Answer:
        """Request all of an answer that is buffered; raises like `submit`."""
        answer = self._start(lambda number: Rejoin(number, order.name, order.owner), tenant)
        if work is not None:
            kind = msg.SubmitHttp if isinstance(work, HttpRequest) else msg.Submit
            self._orders[answer.request_id] = kind(0, work, tenant, order)  # type: ignore[arg-type]
        return answer

    def leave(
        self, request_id: int, when_ended: Callable[[int], object] | None, *, returns: bool
    ) -> None:
        """Let a buffered answer continue without its client, or be deleted.

        Args:
            when_ended: called when it is over, with the tokens that came meanwhile.
            returns: whether the client may come back.
        """
        if when_ended is not None:
            self._left[request_id] = when_ended
        if self._transport is None:
            self._end(request_id)
        self.send(Left(request_id, returns))

    def _end(self, request_id: int, num_tokens: int = 0) -> None:
        if (when_ended := self._left.pop(request_id, None)) is not None:
            when_ended(num_tokens)

    def resume(self, answer: Answer) -> None:
        """Request the rest of an answer that another connection has begun.

        A request suspected of having killed its process is resumed only when no other suspect is
        running.
        """
        if self._resumption.quarantine(answer):
            self._try_next()
        else:
            self._move_here(answer)

    def acknowledged(self, answer: Answer) -> None:
        if self._resumption.release(answer):
            self._try_next()

    def _try_next(self) -> None:
        while (answer := self._resumption.next()) is not None:
            if not answer.is_over:
                self._move_here(answer)
                return
            self._resumption.release(answer)  # Its client has left.

    def _move_here(self, answer: Answer) -> None:
        number = next(self._ids)
        self.answers[number] = answer
        try:
            answer.move(self, number)
        except Exception as error:  # noqa: BLE001  others move after it
            self._fail(answer, error)

    def manage(self, body: dict[str, object]) -> Answer:
        return self._start(lambda number: msg.Manage(number, body))

    def send(self, message: msg.FromClient) -> None:
        """Send a message; nothing happens when the model is down."""
        if self._transport is not None:
            self._transport.write(encode_request(message))

    def forget(self, request_id: int) -> bool:
        return self._pop(request_id) is not None

    def _pop(self, request_id: int) -> Answer | None:
        answer = self.answers.pop(request_id, None)
        self._orders.pop(request_id, None)
        if answer is not None:
            self.acknowledged(answer)
        return answer

    def close(self) -> None:
        """Leave; what is open fails."""
        self._learn(ModelInfo())
        if self._transport is not None:
            self._transport.close()

    def _learn(self, model: ModelInfo) -> None:
        self.model, resumption = model, self._resumption
        resumption.timeout, resumption.limit = model.return_seconds, model.migration_limit

    def _request(self, message: msg.FromClient) -> None:
        if self._transport is None:
            raise UnavailableError(GONE)
        self.send(message)

    def _start(self, message: Callable[[int], msg.FromClient], tenant: str = "") -> Answer:
        if self._transport is None:
            raise UnavailableError(GONE)
        number = next(self._ids)
        request = message(number)
        try:
            frame = self._encoder.encode_request(request)
        except ValueError as error:
            # The stub cannot read such a frame, and would close the connection.
            text = f"the request cannot be sent to the model: {error}"
            raise HttpError(HTTPStatus.BAD_REQUEST, text) from error
        answer = Answer(self, number, self._progress(request), tenant)
        self.answers[number] = answer
        self._transport.write(frame)
        return answer

    def _progress(self, order: msg.FromClient | None) -> Progress | None:
        if (progress := self._resumption.progress(order, 0)) is not None:
            progress.meet(self.model)
        return progress

    def _take_events(self, events: msg.Events) -> None:
        now, is_delta = time.monotonic(), isinstance(events, msg.Deltas)
        take = Answer.pass_delta if is_delta else Answer.pass_event
        for number, data, ids in zip(events.ids, events.data, events.token_ids, strict=True):
            if (answer := self.answers.get(number)) is not None:
                try:
                    take(answer, data, ids, now)
                except Exception as error:  # noqa: BLE001  all answers come on this connection
                    self._fail(answer, error)

    def _fail(self, answer: Answer, error: Exception) -> None:
        _log.error("an answer of model %s failed", self.model.name, exc_info=error)
        answer.fail(EngineError("the answer could not be sent on; the log says why"))
        answer.abort()

    def _take(self, message: msg.ToClient) -> None:
        match message:
            case msg.Output():
                if (answer := self.answers.get(message.id)) is not None:
                    try:
                        answer.put(message.chunk)
                    except Exception as error:  # noqa: BLE001  all answers come on this connection
                        self._fail(answer, error)
            case Rejoined():
                if (answer := self.answers.get(message.id)) is not None:
                    order = self._orders.pop(message.id, None)
                    if order is not None and message.where is not None:
                        order = resumed(order, message.where)
                    answer.rejoin(message, self._progress(order))
            case Ended():
                self._end(message.id, message.num_tokens)
            case msg.Failure():
                self._end(message.id)
                if (answer := self._pop(message.id)) is not None:
                    answer.fail(error_of(message))
            case msg.Welcome():
                self._learn(message.model)
                self._on_welcome(message)
                self.has_answered.set()
            case msg.Refused():
                self.refusal = message.reason
            case _:
                self.requests.take(message)
