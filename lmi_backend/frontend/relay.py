"""Send a model's answer to a client, and tell the model when the client leaves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from lmi_backend.errors import CancelledError, EngineError, LmiError
from lmi_backend.frontend.http_form import Ending, HttpForm
from lmi_backend.generation import HttpChunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.client import Client
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.failures import Failure
    from lmi_backend.generation import Chunk
    from lmi_backend.schema.reply import Reply, Response

CLIENT_LEFT: Final = 499
"""Status in the log of a request whose client left; nobody gets it."""


class Form(Protocol):
    """Makes an HTTP response of chunks."""

    status: int
    headers: Mapping[str, str]
    """Both are known after the first `write`."""
    is_over: bool
    """Whether the answer is complete."""

    @property
    def is_failed(self) -> bool:
        """Whether the engine's own events report an error."""
        ...

    def write(self, chunks: list[Chunk]) -> bytes:
        """Return the bytes to send for some chunks. Raises LmiError: the answer is an error."""
        ...

    def failure(self, error: LmiError) -> Ending:
        """Return what is sent where an answer fails after it has begun."""
        ...


class ReplyForm:
    """An answer that a `Reply` of ours writes.

    Args:
        reply: writes the output `response`.
        answers: answers that the request asks for.
        content_type: of the response.
        fail: writes an error in the middle of it; nothing, if the format cannot.
    """

    is_failed = False

    def __init__(
        self, reply: Reply, answers: int, content_type: str, fail: Callable[[LmiError], str]
    ) -> None:
        self.status, self.is_over = 200, False
        self.headers: Mapping[str, str] = {"content-type": content_type}
        self._reply, self._left, self._fail = reply, answers, fail

    def write(self, chunks: list[Chunk]) -> bytes:
        """Return the reply's bytes; the chunks of an answer are merged first."""
        return b"".join(_bytes(each.get("response", b"")) for each in self._responses(chunks))

    def _responses(self, chunks: list[Chunk]) -> list[Response]:
        if len(chunks) > 1:
            chunks = _merged(chunks)
        for chunk in chunks:
            self._left -= chunk.is_last
        self.is_over = self._left <= 0
        return self._reply.responses(chunks, is_last=self.is_over)

    def failure(self, error: LmiError) -> Ending:
        """Return what the reply's format writes."""
        data = self._fail(error).encode()
        return Ending(data, is_end=bool(data))


async def send_answer(
    exchange: Exchange,
    answer: Answer,
    form: Form,
    failure_of: Callable[[LmiError], Failure],
) -> None:
    """Send an answer to its end; a client that leaves ends its request.

    Args:
        failure_of: makes the response of an error that comes before anything else.
    """
    exchange.when_gone(partial(_leave, answer))
    try:
        await _send(exchange, answer, form, failure_of)
    finally:
        answer.close()


async def _send(
    exchange: Exchange, answer: Answer, form: Form, failure_of: Callable[[LmiError], Failure]
) -> None:
    direct = exchange.direct
    forward = None if direct is None else _Forward(exchange, direct, form, answer)
    try:
        while not form.is_over:
            chunks = await answer.read()
            _count(exchange, chunks)
            data = form.write(chunks)
            if form.is_over:
                answer.end()
            if data or form.is_over:
                await _send_part(exchange, form, data)
                answer.forward = forward
    except LmiError as error:
        if exchange.has_left:
            exchange.status = exchange.status or CLIENT_LEFT
        else:
            await _fail(exchange, form, error, failure_of)
    else:
        if form.is_failed:
            exchange.error = EngineError.__name__


async def _fail(
    exchange: Exchange, form: Form, error: LmiError, failure_of: Callable[[LmiError], Failure]
) -> None:
    """Send an error in the client's format; without one, `Exchange.close` ends the connection."""
    exchange.error = type(error).__name__
    if not exchange.has_begun:
        await exchange.respond(*failure_of(error))
        return
    data, is_end = form.failure(error)
    if data:
        await exchange.write(data, is_last=is_end)


class _Forward:
    """Writes what comes of the middle of an answer, if its client reads."""

    __slots__ = ("_answer", "_client", "_exchange", "_form", "_takes_events")

    def __init__(self, exchange: Exchange, client: Client, form: Form, answer: Answer) -> None:
        self._exchange, self._client, self._form, self._answer = exchange, client, form, answer
        self._takes_events = isinstance(form, HttpForm)
        """Whether an event is written as it is."""

    def chunk(self, chunk: Chunk) -> bool:
        if chunk.is_last or not self._client.is_free:
            return False
        try:
            data = self._form.write([chunk])
        except LmiError as error:
            self._answer.fail(error)
            self._answer.abort()
            return True
        _count(self._exchange, (chunk,))
        if data:
            self._client.write(data)
            self._exchange.has_written()
        return True

    def event(self, data: bytes, num_tokens: int) -> bool:
        if not self._takes_events:
            return self.chunk(HttpChunk(data, num_tokens=num_tokens))
        if not self._client.is_free:
            return False
        self._client.write(data)
        self._exchange.num_tokens += num_tokens
        self._exchange.has_written()
        return True


async def _send_part(exchange: Exchange, form: Form, data: bytes) -> None:
    """Send the next bytes; an answer that is complete at once gets its length."""
    if not exchange.status and form.is_over:
        await exchange.respond(form.status, data, form.headers)
        return
    if not exchange.status:
        await exchange.start(form.status, form.headers)
    await exchange.write(data, is_last=form.is_over)


def _count(exchange: Exchange, chunks: Iterable[Chunk]) -> None:
    for chunk in chunks:
        exchange.num_tokens += chunk.num_tokens
        exchange.num_prompt_tokens = max(exchange.num_prompt_tokens, chunk.num_prompt_tokens)


def _leave(answer: Answer) -> None:
    answer.abort()
    answer.fail(CancelledError("the client closed its connection"))


def answers_of(work: object) -> int:
    """Return how many answers a request asks for."""
    if isinstance(work, tuple):
        return sum(request.n for request in work)
    return 1


def _merged(chunks: list[Chunk]) -> list[Chunk]:
    """Return one chunk for each answer."""
    merged: dict[int, Chunk] = {}
    for chunk in chunks:
        if (before := merged.get(chunk.index)) is None:
            merged[chunk.index] = chunk
        else:
            before.merge(chunk)  # type: ignore[arg-type]  # a request has one kind of chunks
    return list(merged.values())


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
