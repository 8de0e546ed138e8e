"""Send a model's answer to a client, and tell the model when the client leaves."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.form import EVENTS, on_one_line
from lmi_backend.clients.lmi.handler_form import LmiForm
from lmi_backend.clients.openai.form import HttpForm
from lmi_backend.errors import CancelledError, EngineError, LmiError, MovedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lmi_backend.clients.failure import ErrorResponse
    from lmi_backend.clients.form import Form
    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.generation import Chunk, Delta

CLIENT_LEFT: Final = 499
"""Status in the log of a request whose client left; nobody gets it."""


async def send_answer(
    exchange: Exchange,
    answer: Answer,
    form: Form,
    failure_of: Callable[[LmiError], ErrorResponse],
) -> None:
    """Send a whole answer; cancel its request if the client leaves.

    Args:
        failure_of: makes the response of an error that comes before anything else.
    """
    exchange.when_gone(partial(_leave, answer))
    try:
        await _send(exchange, answer, form, failure_of)
    finally:
        answer.close()


async def _send(
    exchange: Exchange, answer: Answer, form: Form, failure_of: Callable[[LmiError], ErrorResponse]
) -> None:
    forward = _Forward(exchange, form, answer)
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


class _Forward:
    """Writes what comes of an answer, and of its middle at once if its client reads."""

    __slots__ = ("_answer", "_client", "_exchange", "_form", "_lines", "_notes_all", "_passing")

    def __init__(self, exchange: Exchange, form: Form, answer: Answer) -> None:
        self._exchange, self._form, self._answer = exchange, form, answer
        self._client = exchange.direct
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
            self._answer.end()
        if data or form.is_over:
            await _send_part(self._exchange, form, data)
            self._answer.forward = self

    def pass_event(self, data: bytes, num_tokens: int, now: float) -> bool:
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
    """Send the next bytes; an answer that is complete at once gets its length, but no stream."""
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
