"""The front end's end of one model's endpoint: requests out, chunks of their answers back."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from lmi_backend.engine_config import ModelInfo
from lmi_backend.errors import EngineDeadError, EngineError, LmiError, UnavailableError, WorkerError
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import error_of
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, encode
from lmi_backend.serving.progress import Progress, may_go_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.generation import Chunk, GenerateRequest

_log = logging.getLogger(__name__)
_Said = TypeVar("_Said")

GONE: Final = "the model was unloaded, or its process died"
UNREAD_BYTES: Final = 8 << 20
"""Of one answer whose client does not read; then it is ended."""
# What a chunk takes beside its text, about.
_CHUNK_BYTES: Final = 400


class Answer:
    """What has come of one request's answer and is not yet taken."""

    __slots__ = (
        "_chunks", "_connection", "_error", "_progress", "_unread", "_waiting", "forward",
        "is_over", "request_id",
    )  # fmt: skip

    def __init__(
        self, connection: ModelConnection, request_id: int, progress: Progress | None
    ) -> None:
        self._connection, self.request_id = connection, request_id
        self._progress = progress
        """What lets it go on when the model is gone and back; None if it cannot."""
        self._chunks: list[Chunk] = []
        self._unread = 0
        self._error: LmiError | None = None
        self.is_over = False
        """Whether it has ended, or its client has left."""
        self._waiting: asyncio.Future[None] | None = None
        self.forward: Callable[[Chunk], bool] | None = None
        """Takes a chunk to the client at once, or returns False: `read` will return it."""

    def put(self, chunk: Chunk) -> None:
        """Take a chunk from the connection."""
        if chunk.is_last:
            self._progress = None
        elif self._progress is not None:
            self._progress.add(chunk)
        if self._waiting is not None and self.forward is not None and self.forward(chunk):
            return
        # Looked at before it is added: a single large one is read at once.
        if self._unread > UNREAD_BYTES:
            self._chunks = []
            self.fail(EngineError("the client does not read its answer"))
            self.abort()
            return
        self._chunks.append(chunk)
        self._unread += _CHUNK_BYTES + _size(chunk)
        self._wake()

    def fail(self, error: LmiError) -> None:
        """End with an error, after what has come."""
        self._error = self._error or error
        self.is_over = True
        self._wake()

    async def read(self) -> list[Chunk]:
        """Wait for the next chunks, and return all that have come.

        Raises:
            LmiError: the request failed; what came before has been returned.
        """
        if not self._chunks and self._error is None:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        if not self._chunks and self._error is not None:
            raise self._error
        chunks, self._chunks, self._unread = self._chunks, [], 0
        return chunks

    def close(self) -> None:
        """Forget the request once it has ended; until then its end aborts it."""
        if self._connection.forget(self.request_id) and not self.is_over:
            self.abort()
        # Not asked for either, where it waits for its model.
        self.is_over = True

    def abort(self) -> None:
        """Tell the model that nobody waits."""
        self._connection.forget(self.request_id)
        self._connection.send(msg.Abort([self.request_id]))

    def may_go_on(self, limit: int) -> bool:
        """Tell whether the model may be asked for the rest, for at most the `limit`th time."""
        progress = self._progress
        return progress is not None and progress.moves < limit and progress.can_continue

    def move(self, connection: ModelConnection, request_id: int) -> None:
        """Let another connection bring the rest, and ask there for it."""
        self._connection, self.request_id = connection, request_id
        if self._progress is not None:
            self._progress.moves += 1
            connection.send(self._progress.message(request_id))

    def end(self) -> None:
        """Note that the last chunk has come."""
        self.is_over = True

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
            self._waiting = None


class ModelConnection(asyncio.Protocol):
    """A connection to a model's endpoint.

    Args:
        on_welcome: called with each `Welcome`, the first and those that tell of a change.
        on_lost: called once, when the model has gone, with the answers that may go on.
    """

    def __init__(
        self, on_welcome: Callable[[msg.Welcome], None], on_lost: Callable[[list[Answer]], None]
    ) -> None:
        self._on_welcome, self._on_lost = on_welcome, on_lost
        self.model = ModelInfo()
        """What the model is; set by its first `Welcome`."""
        self._transport: asyncio.Transport | None = None
        self._decoder: FrameDecoder[msg.ToClient] = FrameDecoder(msg.ToClient, limit=LARGEST_FRAME)
        self._answers: dict[int, Answer] = {}
        # In the order of the questions, which is that of the answers.
        self._health: list[asyncio.Future[msg.Health]] = []
        self._states: list[asyncio.Future[msg.State]] = []
        self._ids = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the endpoint."""
        # uvloop's is not a subclass.
        self._transport = cast("asyncio.Transport", transport)
        self.send(msg.Hello(msg.PROTOCOL, os.getpid(), keeps_ids=True))

    def data_received(self, data: bytes) -> None:
        """Hand each message to the request it belongs to."""
        try:
            messages = self._decoder.feed(data)
        except WorkerError as error:
            _log.warning("an endpoint cannot be understood: %s", error)
            self.close()
            return
        for message in messages:
            self._take(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on the answers that may go on; fail what else is open."""
        self._transport = None
        error = EngineDeadError(GONE)
        answers, self._answers = self._answers, {}
        limit = self.model.migration_limit if self.model.return_seconds else 0
        left = [answer for answer in answers.values() if answer.may_go_on(limit)]
        for answer in set(answers.values()).difference(left):
            answer.fail(error)
        asked: list[asyncio.Future[Any]] = [*self._health, *self._states]
        for waiting in asked:
            if not waiting.done():
                waiting.set_exception(error)
        self._on_lost(left)

    @property
    def num_open(self) -> int:
        """Requests that have not ended."""
        return len(self._answers)

    def submit(self, work: tuple[GenerateRequest, ...] | HttpRequest, tenant: str) -> Answer:
        """Send a request.

        Raises:
            UnavailableError: the model has gone.
        """
        if isinstance(work, HttpRequest):
            return self._start(lambda number: msg.SubmitHttp(number, work, tenant))
        return self._start(lambda number: msg.Submit(number, work, tenant))

    def resume(self, answer: Answer) -> None:
        """Ask for the rest of an answer that another connection has begun."""
        number = next(self._ids)
        self._answers[number] = answer
        answer.move(self, number)

    def manage(self, body: dict[str, object]) -> Answer:
        """Send a request about LoRA adapters; raises like `submit`."""
        return self._start(lambda number: msg.Manage(number, body))

    async def health(self) -> msg.Health:
        """Ask whether the model takes requests; raises like `submit`."""
        return await self._ask(msg.AskHealth(), self._health)

    async def state(self, log_after: int = -1) -> dict[str, Any]:
        """Ask for all that people look at (`endpoint/state.py`); raises like `submit`."""
        return (await self._ask(msg.AskState(log_after), self._states)).values

    async def brief_state(self) -> dict[str, Any]:
        """Ask for what changes with each request; raises like `submit`."""
        return (await self._ask(msg.AskState(is_brief=True), self._states)).values

    def send(self, message: msg.FromClient) -> None:
        """Send a message; nothing happens when the model has gone."""
        if self._transport is not None:
            self._transport.write(encode([message]))

    def forget(self, request_id: int) -> bool:
        """Forget a request; return whether it was open."""
        return self._answers.pop(request_id, None) is not None

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
        keeps = self.model.return_seconds > 0
        progress = Progress(order, 0) if keeps and may_go_on(order) else None
        answer = Answer(self, number, progress)
        self._answers[number] = answer
        self.send(order)
        return answer

    def _take(self, message: msg.ToClient) -> None:
        match message:
            case msg.HttpOutput() | msg.Output():
                if (answer := self._answers.get(message.id)) is not None:
                    answer.put(message.chunk)
            case msg.Failure():
                if (answer := self._answers.pop(message.id, None)) is not None:
                    answer.fail(error_of(message))
            case msg.Welcome():
                self.model = message.model
                self._on_welcome(message)
            case msg.Health():
                _answer(self._health, message)
            case msg.State():
                _answer(self._states, message)
            case _:
                pass


def _size(chunk: Chunk) -> int:
    if isinstance(chunk, HttpChunk):
        return len(chunk.data)
    return len(chunk.text) + _CHUNK_BYTES * (len(chunk.tokens) + len(chunk.prompt_tokens))


def _answer(asked: list[asyncio.Future[_Said]], said: _Said) -> None:
    """Hand an answer to who asked first, if it still waits."""
    if asked and not (waiting := asked.pop(0)).done():
        waiting.set_result(said)
