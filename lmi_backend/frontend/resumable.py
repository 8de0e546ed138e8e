"""Streams and responses whose clients may reconnect, to this front end or another.

The stub has the only log of an answer (`endpoint/buffered.py`). Events are counted here while they
are written: a client that reconnects is sent the answer from its beginning, without what it has.
Responses of `/v1/responses` have ids, by which clients read, cancel and delete them, also those
that another front end began.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from lmi_backend.clients.lmi import HandlerForm
from lmi_backend.clients.responses import PATH, BackgroundForm, ResponsesForm, responses_in
from lmi_backend.clients.spec import EVENTS, JSON, AdapterChange, Ending, Restorable
from lmi_backend.errors import EngineError, HttpError, LmiError, RequestError, UnavailableError
from lmi_backend.frontend.answer import ReturningClient, send_answer
from lmi_backend.frontend.http.bodies import ClientGoneError, aside, read_object
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.chunk_log import block_of, parts_in
from lmi_backend.ipc.messages import NOT_BUFFERED, Buffering, Find, error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.clients.spec import ErrorResponse, Form, Path, Read
    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.frontend.answer import Answer
    from lmi_backend.frontend.connection import ModelConnection
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models
    from lmi_backend.frontend.reading import Reading
    from lmi_backend.generation import Chunk
    from lmi_backend.ipc.messages import Found


WANTED: Final = "x-lmi-resumable"
"""Header of a request: 1 for ids of events, 0 for none where the model gives them."""
LAST_ID: Final = "last-event-id"
_ID: Final = re.compile(r"([\w-]{16})\.([0-9]{1,9})", re.ASCII)
_NAME_BYTES: Final = 12
_END: Final = b"\n\n"
_PING: Final = b": ping\n"
"""Has no empty line: after an id, clients read one as an event without data."""
_OWN_ID: Final = b'"request_id"'
_WAIT_SECONDS: Final = 5.0
"""Time in which a front end that starts finds the models."""
_LOOK_SECONDS: Final = 0.1


class ResumableForm:
    """Writes the events of an answer with their ids, those that its client lacks.

    What is no stream of events is written as it is. Each chunk is written by itself: together, they
    might make other events another time.

    Args:
        name: of the answer. An id is the name, a dot and the number of the event.
        skipped: events that the client has.
    """

    def __init__(self, inner: Form, name: str, skipped: int = 0) -> None:
        self._inner, self._name, self._skipped = inner, name.encode(), skipped
        self._count = 0
        self._rest = b""
        """The beginning of an event that is not complete."""
        self._first = 0
        """Events for which the first chunk stands; only who has them can be sent the others."""
        self._has_begun = False

    @property
    def status(self) -> int:
        return self._inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    @property
    def is_over(self) -> bool:
        return self._inner.is_over

    @property
    def is_failed(self) -> bool:
        return self._inner.is_failed

    def begin_after(self, num_events: int) -> None:
        self._first = num_events

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`.

        Raises:
            HttpError: not all events that the client lacks are there, or its last one is not (404).
        """
        if self._first > self._skipped:
            raise HttpError(HTTPStatus.NOT_FOUND, NOT_BUFFERED)
        if self._first > self._count and chunks and isinstance(self._inner, Restorable):
            first, *chunks = chunks
            self._inner.restore(first, self._first)
            self._count = self._first
        data = b"".join(self._numbered(self._inner.write([chunk])) for chunk in chunks)
        if self.is_over and self._rest:
            data += self._numbered(_END)
        if self._count < self._skipped:
            if self.is_over:
                raise HttpError(HTTPStatus.NOT_FOUND, NOT_BUFFERED)
        elif self._skipped and not (data or self._has_begun or self.is_over):
            # Its client learns at once that it is back.
            data = _PING
        self._has_begun = self._has_begun or bool(data)
        return data

    def failure(self, error: LmiError) -> Ending:
        data, is_end = self._inner.failure(error)
        return Ending(self._numbered(data), is_end=is_end)

    def _numbered(self, data: bytes) -> bytes:
        if not self.headers.get("content-type", "").startswith(EVENTS):
            return data
        *events, self._rest = (self._rest + data).split(_END)
        lines = []
        for event in events:
            text = event.lstrip(b"\n")
            is_comment = all(line[:1] == b":" for line in text.split(b"\n"))
            if text and not is_comment:
                self._count += 1
                if self._count > self._skipped:
                    lines.append(b"id: %b.%d\n%b\n\n" % (self._name, self._count, text))
        return b"".join(lines)

    def so_far(self) -> tuple[int, bytes] | None:
        """Return how many events came, and a block that stands for them; None if none can."""
        taken = self._inner.taken() if isinstance(self._inner, Restorable) else None
        return None if taken is None or self._rest else (self._count, block_of(taken))


async def order_of(
    exchange: Exchange, model: ModelInfo, read: Read, data: bytes
) -> Buffering | None:
    """Return how the answer to a request is to be buffered; None if it is not.

    Raises:
        RequestError: the body chooses the id of a response which is buffered.
    """
    is_lasting = isinstance(read.form, BackgroundForm)
    if not is_lasting and not _is_resumable(exchange, model, read):
        return None
    is_response = exchange.path == PATH
    if is_response and _OWN_ID in data and read_object(data).get("request_id"):
        # Another may have it.
        text = "would be the id of a response that is buffered"
        raise RequestError(text, field="request_id", accepted="nothing")
    return Buffering(
        secrets.token_urlsafe(_NAME_BYTES),
        await _owner_of(exchange, data),
        model.resume_window,
        is_lasting=is_lasting,
        key=exchange.key_digest if is_response else None,
    )


async def send_resumable(
    exchange: Exchange,
    answer: Answer,
    form: ResumableForm,
    failure_of: Callable[[LmiError], ErrorResponse],
    *,
    wrapped: Form | None = None,
    is_back: bool = False,
) -> None:
    """Send an answer to its client, which may leave and reconnect.

    Args:
        wrapped: writes what `form` writes as something else.
        is_back: whether it has reconnected.
    """

    def hand_over() -> Callable[[int], object] | None:
        """Let the answer count for its key without the client."""
        key = exchange.key
        if key is None or form.is_over:
            return None
        exchange.key = None
        tokens = exchange.num_tokens + (0 if is_back else exchange.num_prompt_tokens)
        return lambda more: key.leave(tokens + more)

    returns = exchange.headers.get(WANTED) != "0"
    exchange.ping_text = _PING
    answer.client = ReturningClient(returns, form.begin_after, form.so_far, hand_over)
    await send_answer(exchange, answer, wrapped or form, failure_of)
    if is_back:
        exchange.num_prompt_tokens = 0


async def come_back(reading: Reading, path: Path, exchange: Exchange, data: bytes) -> None:
    """Send a client the events after the one that it names.

    Raises:
        HttpError: nothing is buffered there for this client (404).
        UnavailableError: the model is not there.
        ClientGoneError: the client left while it waited for the model.
    """
    if (match := _ID.fullmatch(exchange.headers[LAST_ID].strip())) is None:
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_BUFFERED)
    model, read = await _read(reading, path, exchange, data)
    if isinstance(read.work, AdapterChange):
        raise HttpError(HTTPStatus.NOT_FOUND, NOT_BUFFERED)
    owner = await _owner_of(exchange, data)
    order = Buffering(match[1], owner, model.info.resume_window)
    answer = model.connection.rejoin(order, read.work, exchange.tenant or read.tenant)
    form = ResumableForm(read.form, match[1], int(match[2]))
    failure = read.failure or exchange.spec.failure
    await send_resumable(exchange, answer, form, failure, is_back=True)


async def _read(
    reading: Reading, path: Path, exchange: Exchange, data: bytes
) -> tuple[Model, Read]:
    """Read a request as another front end did, which this one's client is back from."""
    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            return await reading.actions[path.action](path, exchange, data)
        except UnavailableError:
            if time.monotonic() > end:
                raise
        except LmiError as error:
            # Its answer would not have begun, if this front end knows its model.
            if reading.models.are_complete or time.monotonic() > end:
                raise HttpError(HTTPStatus.NOT_FOUND, NOT_BUFFERED) from error
        await asyncio.sleep(_LOOK_SECONDS)


def _is_resumable(exchange: Exchange, model: ModelInfo, read: Read) -> bool:
    """Tell whether the answer to a request gets ids, if it is a stream of events."""
    wanted = exchange.headers.get(WANTED)
    is_wanted = model.is_resumable if wanted is None else wanted.strip().lower() in ("1", "true")
    if not is_wanted or not model.resume_window or isinstance(read.work, AdapterChange):
        return False
    # Users' code may have ids of its own. Some formats know later that they are no events.
    may_be_events = read.form.headers.get("content-type", EVENTS).startswith(EVENTS)
    return may_be_events and not isinstance(read.form, HandlerForm)


async def _owner_of(exchange: Exchange, data: bytes) -> str:
    """Return a digest of what two requests for one answer have in common: key, path and body."""
    begin = f"{exchange.key_digest} {exchange.path}\n".encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(begin)
    await aside(len(data), digest.update, data)
    return digest.hexdigest()


NO_RESPONSE: Final = "no response of this id is buffered for this key (option.resume_window)"
_TRUE: Final = ("true", "1")
_RUNNING: Final = ("in_progress", "queued")
_VERBS: Final[dict[str, Any]] = {"GET": "read", "POST": "cancel", "DELETE": "delete"}


class BeginningForm:
    """The first answer to a request in the background: the response, as soon as it has begun."""

    is_failed = False

    def __init__(self, stream: ResumableForm) -> None:
        self._stream, self._data = stream, b""
        self.is_over = False

    @property
    def status(self) -> int:
        return self._stream.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {"content-type": JSON} if self._data else self._stream.headers

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`. Raises EngineError: it is over before the engine said anything of it."""
        self._data += self._stream.write(chunks)
        response = next(responses_in(self._data), None)
        if response is None and self._stream.is_over:
            raise EngineError("the response failed before it began")
        self.is_over = response is not None
        return b"" if response is None else msgspec.json.encode(response)

    def failure(self, error: LmiError) -> Ending:
        return Ending()


async def answer_stored(exchange: Exchange, model: Model, stored: Found) -> None:
    """Answer a request about a response that `find_stored` has found.

    Raises:
        RequestError: `starting_after` is no number.
        HttpError: what follows is not buffered (404).
    """
    query = dict(parse_qsl(exchange.query))
    state, order, blocks = msgspec.structs.astuple(stored)
    exchange.model = model.name
    if exchange.method == "GET" and query.get("stream", "").lower() in _TRUE:
        inner = BackgroundForm(is_stream=True) if order.is_lasting else exchange.spec.form()
        form = ResumableForm(inner, order.name, _number(query))
        answer, failure = model.connection.rejoin(order), exchange.spec.failure
        await send_resumable(exchange, answer, form, failure, is_back=True)
        return
    response = _latest(blocks, state, is_lasting=order.is_lasting)
    if exchange.method == "DELETE":
        response = {"id": response.get("id"), "object": "response", "deleted": True}
    await exchange.respond_json(response)


async def find_stored(models: Models, exchange: Exchange) -> tuple[Model, Found] | None:
    """Send each model, as it is known, what is wanted of a response, until one has it.

    Returns:
        None if no model buffers it for this client.

    Raises:
        HttpError: the client has deleted it (404).
        ClientGoneError: the client left meanwhile.
    """
    search = Find(exchange.key_digest, exchange.parameters["id"], _VERBS[exchange.method])
    end = time.monotonic() + _WAIT_SECONDS
    seen: list[ModelConnection] = []
    while True:
        for model in models.all():
            if model.connection in seen or not model.info.resume_window:
                continue
            seen.append(model.connection)
            try:
                stored = await model.connection.requests.find(search)
            except UnavailableError:
                continue
            if exchange.has_left:
                raise ClientGoneError
            if stored.state == "deleted":
                raise HttpError(HTTPStatus.NOT_FOUND, NO_RESPONSE)
            if stored.state:
                return model, stored
        if (models.are_complete and models.all()) or time.monotonic() > end:
            return None
        await asyncio.sleep(_LOOK_SECONDS)


def is_by_id(exchange: Exchange) -> bool:
    return "id" in exchange.parameters and exchange.path.startswith(f"{PATH}/")


def _number(query: dict[str, str]) -> int:
    text = query.get("starting_after", "-1")
    try:
        return max(0, int(text) + 1)
    except ValueError:
        raise RequestError("is not a whole number", field="starting_after", value=text) from None


def _latest(blocks: list[bytes], state: str, *, is_lasting: bool) -> dict[str, Any]:
    """Return a response as it is now: the complete one, or as it began."""
    form = BackgroundForm(is_stream=True) if is_lasting else ResponsesForm()
    data = b""
    for part in (part for block in blocks for part in parts_in(block)):
        if isinstance(part, msg.Failure):
            data += form.failure(error_of(part)).data
        else:
            data += form.write([part.chunk])
    responses = [*responses_in(data)]
    if responses and responses[-1].get("status", _RUNNING[0]) not in _RUNNING:
        return responses[-1]
    response = next(iter(responses), {})
    if state == "cancelled":
        return response | {"status": "cancelled"}
    if state == "over" and is_lasting:
        error = {"code": "server_error", "message": "the answer has no end"}
        return response | {"status": "failed", "error": error}
    return response
