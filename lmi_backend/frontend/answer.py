"""What has come of a model's answer, on its way from the model to the client."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from lmi_backend.clients.lmi import LmiForm
from lmi_backend.clients.openai import HttpForm
from lmi_backend.clients.spec import EVENTS, on_one_line
from lmi_backend.endpoint.backlog import STILL_SECONDS, UNREAD, UNREAD_BYTES
from lmi_backend.errors import CancelledError, EngineError, LmiError, MovedError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.chunk_log import parts_in
from lmi_backend.ipc.events import chunk_of, delta_of
from lmi_backend.ipc.messages import error_of
from lmi_backend.shares import Shares
from lmi_backend.tokenization import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmi_backend.clients.spec import ErrorResponse, Form
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.generation import Chunk, Delta
    from lmi_backend.ipc.messages import Rejoined
    from lmi_backend.resume.progress import Progress

    _Submit = msg.Submit | msg.SubmitHttp

ALL_UNREAD_BYTES: Final = 512 << 20
_NOTED_BYTES: Final = 1 << 20  # unread, from which on it is noted when a client takes something


class Source(Protocol):
    """The connection on which an answer comes; see `ModelConnection`."""

    unread: Unread

    def acknowledged(self, answer: Answer) -> None: ...

    def forget(self, request_id: int) -> bool: ...

    def leave(
        self, request_id: int, when_ended: Callable[[int], object] | None, *, returns: bool
    ) -> None: ...

    def send(self, message: msg.FromClient) -> None: ...


@dataclass(frozen=True)
class ReturningClient:
    returns: bool
    """Whether it may come back when it has left."""
    begin_after: Callable[[int], object]
    """Lets the first chunk stand for so many events."""
    so_far: Callable[[], tuple[int, bytes] | None]
    """Returns how many events came, and a block that stands for them; None if none can."""
    hand_over: Callable[[], Callable[[int], object] | None]
    """Lets the answer count for its key alone; returns what is to be called at its end."""


class Unread:
    """What all answers of a process have that their clients have not read.

    Args:
        limit: bytes of all. Beyond it the largest answer fails of the key that holds most.
    """

    def __init__(self, limit: int = ALL_UNREAD_BYTES) -> None:
        self._limit = limit
        self.answers: Shares[Answer] = Shares()

    def add(self, answer: Answer, size: int) -> None:
        self.answers.add(answer, size, answer.owner)
        for each in self.answers.excess(self._limit):
            each.end_unread()


class Answer:
    """What has come of one request's answer and is not yet taken."""

    def __init__(
        self,
        connection: Source,
        request_id: int,
        progress: Progress | None,
        owner: str = "",
    ) -> None:
        self._connection, self.request_id = connection, request_id
        self.progress = progress
        """What lets it resume when the model is gone and back; None if it cannot."""
        self.unread_chunks: list[Chunk] = []
        self._blocks: list[bytes] = []
        """What came before it was requested again, the latest first; it is read before all else."""
        self._after: Progress | None = None
        """What becomes its progress when these are read."""
        self._is_resumed = self.are_old = False
        """The last one: whether what was read last had come before."""
        self._unread = connection.unread
        self.owner = owner
        self.unsent: Callable[[], int] = int
        """Returns the bytes of what was read that the client has not taken."""
        self._seen, self._taken_at = -1, 0.0
        """These bytes, and when something was taken last, as far as was looked."""
        self.client: ReturningClient | None = None
        """Its client, if the answer is buffered for it."""
        self._has_left = False
        """Whether the model knows that this client wants no more of it now."""
        self._error: LmiError | None = None
        self.is_over = False
        """Whether it is finished, or its client has left."""
        self._waiting: asyncio.Future[None] | None = None
        self.forward: Forwarding | None = None
        """What takes chunks to the client at once, while nothing waits to be read."""

    def pass_event(self, data: bytes, ids: bytes, now: float) -> None:
        """Take an event from the connection: what `put` does of its chunk, without making one."""
        forward = self.forward if self._waiting is not None else None
        if forward is None or not forward.pass_event(data, len(ids) // ID_BYTES, now):
            self.put(chunk_of(msg.Events, data, ids))
        elif self.progress is not None and self.progress.pass_event(data, ids):
            self._connection.acknowledged(self)

    def pass_delta(self, data: bytes, ids: bytes, now: float) -> None:
        """Do the same with an event of `Deltas`. Raises msgspec.DecodeError: the data are none."""
        delta = delta_of(data, ids)
        forward = self.forward if self._waiting is not None else None
        if forward is None or not forward.pass_delta(delta, now):
            self.put(delta)
        elif self.progress is not None and self.progress.pass_event(data, ids):
            self._connection.acknowledged(self)

    def put(self, chunk: Chunk) -> None:
        if chunk.is_last:
            self.progress = None
        elif self.progress is not None and self.progress.add(chunk):
            self._connection.acknowledged(self)
        forward = self.forward if self._waiting is not None else None
        if forward is None or not forward.take(chunk):
            self._keep(chunk)

    def rejoin(self, rejoined: Rejoined, progress: Progress | None) -> None:
        """Take what is buffered of it.

        Args:
            progress: of the request, after the events for which the first block stands.
        """
        self._blocks, self._after = rejoined.blocks[::-1], progress
        self._is_resumed = rejoined.num_events > 0
        if self.client is not None:
            self.client.begin_after(rejoined.num_events)
        self._wake()

    def _next_block(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        for part in parts_in(self._blocks.pop()):
            if isinstance(part, msg.Failure):
                self.fail(error_of(part))
            else:
                chunks.append(part.chunk)
        # What came meanwhile follows. The ids of what the first one stands for are known.
        numbered = [] if self._is_resumed else chunks
        for chunk in numbered if self._blocks else (*numbered, *self.unread_chunks):
            if chunk.is_last:
                self._after = None
            elif self._after is not None:
                self._after.add(chunk)
        self._is_resumed, self.are_old = False, True
        self.progress = None if self._blocks else self._after
        return chunks

    def _keep(self, chunk: Chunk) -> None:
        size = self._unread.answers.of(self)
        if size > _NOTED_BYTES and self._stands_still() and size > UNREAD_BYTES:
            self.end_unread()
            return
        self.unread_chunks.append(chunk)
        self._unread.add(self, chunk.memory)
        self._wake()

    def _stands_still(self) -> bool:
        unsent, now = self.unsent(), time.monotonic()
        if unsent != self._seen:
            self._seen, self._taken_at = unsent, now
        return now - self._taken_at > STILL_SECONDS

    def end_unread(self) -> None:
        self._drop()
        # A client that reconnects has the rest.
        self.fail(EngineError(UNREAD) if self.client is None else MovedError(UNREAD))
        self.abort()

    def _drop(self) -> list[Chunk]:
        chunks, self.unread_chunks = self.unread_chunks, []
        self._unread.answers.forget(self)
        self._seen = -1
        return chunks

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
        if not (self._blocks or self.unread_chunks or self._error):
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        if self._blocks:
            # There may be many, and others are to run too.
            await asyncio.sleep(0)
        if self._blocks:
            return self._next_block()
        self.are_old = False
        if not self.unread_chunks and self._error is not None:
            raise self._error
        return self._drop()

    def close(self) -> None:
        is_open = self._connection.forget(self.request_id)
        if self.client is not None:
            self._leave(self.client, is_open=is_open)
        elif is_open and not self.is_over:
            self.abort()
        # Not asked for either, where it waits for its model.
        self.is_over = True
        self._drop()

    def abort(self) -> None:
        is_open = self._connection.forget(self.request_id)
        if self.client is None:
            self._connection.send(msg.Abort([self.request_id]))
        else:
            self._leave(self.client, is_open=is_open)

    def _leave(self, client: ReturningClient, *, is_open: bool) -> None:
        self._blocks = []
        if not self._has_left:
            self._has_left = True
            when_ended = client.hand_over() if is_open else None
            self._connection.leave(self.request_id, when_ended, returns=client.returns)

    def move(self, connection: Source, request_id: int) -> None:
        self._connection, self.request_id = connection, request_id
        if self.progress is not None:
            self.progress.times += 1
            self.progress.is_acknowledged = False
            message = self.progress.message(request_id)
            has_begun = self.progress.has_begun
            connection.send(self._with_events(message) if has_begun else message)

    def _with_events(self, message: _Submit) -> _Submit:
        """Let a request that resumes have the model buffer all of the answer, if that can be."""
        if self.client is None or message.buffering is None:
            return message
        so_far = None if self.unread_chunks else self.client.so_far()
        if so_far is None:
            self.client = None
            return replace(message, buffering=None)
        num_events, block = so_far
        buffering = replace(message.buffering, num_events=num_events, block=block)
        return replace(message, buffering=buffering)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
            self._waiting = None


CLIENT_LEFT: Final = 499
"""Status in the log of a request whose client left; nobody gets it."""


async def send_answer(
    exchange: Exchange,
    answer: Answer,
    form: Form,
    failure_of: Callable[[LmiError], ErrorResponse],
) -> None:
    """Send a whole answer, or its failure; cancel its request if the client leaves."""
    exchange.when_gone(partial(_leave, answer))
    try:
        await _send(exchange, answer, form, failure_of)
    finally:
        answer.close()


async def _send(
    exchange: Exchange, answer: Answer, form: Form, failure_of: Callable[[LmiError], ErrorResponse]
) -> None:
    forward = Forwarding(exchange, form, answer)
    try:
        while not form.is_over:
            chunks = await answer.read()
            if not answer.are_old:
                _count(exchange, chunks)
            await forward.send(chunks)
    except LmiError as error:
        if exchange.has_left:
            exchange.status = exchange.status or CLIENT_LEFT
        elif isinstance(error, MovedError) and exchange.has_begun:
            exchange.error = type(error).__name__
        else:
            await _fail(exchange, form, error, failure_of)
    else:
        if form.is_failed:
            exchange.error = EngineError.__name__


async def _fail(
    exchange: Exchange, form: Form, error: LmiError, failure_of: Callable[[LmiError], ErrorResponse]
) -> None:
    """Send an error in the client's format; without one, `Exchange.close` closes the connection."""
    exchange.error = type(error).__name__
    if not exchange.has_begun:
        await exchange.respond(*failure_of(error))
        return
    data, is_end = form.failure(error)
    if data or is_end:
        await exchange.write(data, is_last=is_end)


class Forwarding:
    """Writes what comes of an answer, and of its middle at once if its client reads."""

    def __init__(self, exchange: Exchange, form: Form, answer: Answer) -> None:
        self._exchange, self._form, self._answer = exchange, form, answer
        self._client = exchange.client
        answer.unsent = self._client.unsent
        passing = form if isinstance(form, HttpForm) and form.passes_events else None
        self._passing = passing
        """Notes the events that are written as they are; None where none is."""
        self._notes_all = passing is not None and type(passing).note is not HttpForm.note
        """Whether it notes more than failures: to note each event costs as much as to write it."""
        self._lines = form.lines if isinstance(form, LmiForm) else None
        """Makes the line of a delta."""

    async def send(self, chunks: list[Chunk]) -> None:
        """Send what some chunks make; from then on `take` may."""
        form = self._form
        data = form.write(chunks)
        if form.is_over:
            self._answer.is_over = True
        if data or form.is_over:
            await _send_part(self._exchange, form, data)
            self._answer.forward = self

    def pass_event(self, data: bytes, num_tokens: int, now: float) -> bool:
        """Write an event, whose data is all that it says, or return False: `take` may take it.

        Args:
            now: time of the monotonic clock.
        """
        passing = self._passing
        if passing is None or not data:
            return False
        # Looked for here: a call for each event costs as much as to write it.
        if (b"\xe2\x80" in data or b"\xc2\x85" in data) and passing.has_json:
            data = on_one_line(data)
        if not self._client.pass_on(data):
            return False
        if self._notes_all or b"error" in data or b"failed" in data:
            passing.note(data)
        self._exchange.has_passed(num_tokens, now)
        return True

    def pass_delta(self, delta: Delta, now: float) -> bool:
        lines, exchange = self._lines, self._exchange
        line = lines.line(delta) if lines is not None else None
        if lines is None or line is None or not self._client.pass_on(line):
            return False
        lines.note(delta)
        exchange.num_prompt_tokens = max(exchange.num_prompt_tokens, delta.num_prompt_tokens)
        exchange.has_passed(delta.num_tokens, now)
        return True

    def take(self, chunk: Chunk) -> bool:
        """Write a chunk, or return False: `Answer.read` is to return it."""
        if chunk.is_last or not self._client.is_free:
            return False
        try:
            data = self._form.write([chunk])
        except LmiError as error:
            self._answer.fail(error)
            self._answer.abort()
            return True
        exchange = self._exchange
        exchange.num_prompt_tokens = max(exchange.num_prompt_tokens, chunk.num_prompt_tokens)
        if data:
            self._client.write(data)
            exchange.has_passed(chunk.num_tokens, time.monotonic())
        else:
            exchange.num_tokens += chunk.num_tokens
        return True


async def _send_part(exchange: Exchange, form: Form, data: bytes) -> None:
    if not exchange.status:
        if form.is_over and not form.headers.get("content-type", "").startswith(EVENTS):
            await exchange.respond(form.status, data, form.headers)
            return
        await exchange.start(form.status, form.headers)
    await exchange.write(data, is_last=form.is_over)


def _count(exchange: Exchange, chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        exchange.num_tokens += chunk.num_tokens
        exchange.num_prompt_tokens = max(exchange.num_prompt_tokens, chunk.num_prompt_tokens)


def _leave(answer: Answer) -> None:
    answer.abort()
    answer.fail(CancelledError("the client closed its connection"))
