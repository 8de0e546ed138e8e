"""Responses of `/v1/responses` that the stub buffers, which clients name by their ids.

They are read, cancelled and deleted here, also those that another front end began.
"""

from __future__ import annotations

import asyncio
import json
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import msgspec

from lmi_backend.clients.form import JSON, Ending
from lmi_backend.clients.responses.background import PATH, BackgroundForm
from lmi_backend.clients.responses.form import ResponsesForm
from lmi_backend.errors import EngineError, HttpError, RequestError, UnavailableError
from lmi_backend.frontend.http.bodies import ClientGoneError
from lmi_backend.frontend.resumable import ResumableForm
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.buffered import Find
from lmi_backend.ipc.chunk_log import parts_in
from lmi_backend.ipc.failures import error_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lmi_backend.errors import LmiError
    from lmi_backend.frontend.connection import ModelConnection
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.model import Model
    from lmi_backend.frontend.models import Models
    from lmi_backend.frontend.resumable import ResumableStreams
    from lmi_backend.generation import Chunk
    from lmi_backend.ipc.buffered import Found

NO_RESPONSE: Final = "no response of this id is buffered for this key (option.resume_window)"
_TRUE: Final = ("true", "1")
_RUNNING: Final = ("in_progress", "queued")
_VERBS: Final[dict[str, Any]] = {"GET": "read", "POST": "cancel", "DELETE": "delete"}
_WAIT_SECONDS: Final = 5.0
"""Time in which a front end that starts finds the models."""
_LOOK_SECONDS: Final = 0.1


class BeginningForm:
    """The first answer to a request in the background: the response, as soon as it has begun.

    Args:
        stream: makes the stream of it.
    """

    is_failed = False

    def __init__(self, stream: ResumableForm) -> None:
        self._stream, self._data = stream, b""
        self.is_over = False

    @property
    def status(self) -> int:
        """See `Form`."""
        return self._stream.status

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Form`."""
        return {"content-type": JSON} if self._data else self._stream.headers

    def write(self, chunks: list[Chunk]) -> bytes:
        """See `Form`.

        Raises:
            EngineError: it is over before the engine said anything of it.
        """
        self._data += self._stream.write(chunks)
        response = next(_responses_in(self._data), None)
        if response is None and self._stream.is_over:
            raise EngineError("the response failed before it began")
        self.is_over = response is not None
        return b"" if response is None else msgspec.json.encode(response)

    def failure(self, error: LmiError) -> Ending:
        """See `Form`."""
        return Ending()


class Responses:
    """Answers requests about responses that are buffered.

    Args:
        models: those that may have them.
        streams: sends the rest of one that is followed.
    """

    def __init__(self, models: Models, streams: ResumableStreams) -> None:
        self._models, self._streams = models, streams

    async def answer(self, exchange: Exchange, model: Model, found: Found) -> None:
        """Answer a request about a response that `find` has found.

        Raises:
            RequestError: `starting_after` is no number.
            HttpError: what follows is not buffered (404).
        """
        query = {name: values[-1] for name, values in parse_qs(exchange.query).items()}
        state, order, blocks = msgspec.structs.astuple(found)
        exchange.model = model.name
        if exchange.method == "GET" and query.get("stream", "").lower() in _TRUE:
            inner = BackgroundForm(is_stream=True) if order.is_lasting else exchange.spec.form()
            form = ResumableForm(inner, order.name, _number(query))
            answer, failure = model.connection.rejoin(order), exchange.spec.failure
            await self._streams.send(exchange, answer, form, failure, is_back=True)
            return
        response = _latest(blocks, state, is_lasting=order.is_lasting)
        if exchange.method == "DELETE":
            response = {"id": response.get("id"), "object": "response", "deleted": True}
        await exchange.respond(HTTPStatus.OK, msgspec.json.encode(response), {"content-type": JSON})

    async def find(self, exchange: Exchange) -> tuple[Model, Found] | None:
        """Send each model, as it is known, what is wanted of a response, until one has it.

        Returns:
            None if no model buffers it for this client.

        Raises:
            HttpError: the client has deleted it (404).
            ClientGoneError: the client left meanwhile.
        """
        asked = Find(exchange.key_digest, exchange.parameters["id"], _VERBS[exchange.method])
        end = time.monotonic() + _WAIT_SECONDS
        seen: list[ModelConnection] = []
        while True:
            for model in self._models.all():
                if model.connection in seen or not model.info.resume_window:
                    continue
                seen.append(model.connection)
                try:
                    found = await model.connection.questions.find(asked)
                except UnavailableError:
                    continue
                if exchange.has_left:
                    raise ClientGoneError
                if found.state == "deleted":
                    raise HttpError(HTTPStatus.NOT_FOUND, NO_RESPONSE)
                if found.state:
                    return model, found
            if (self._models.are_complete and self._models.all()) or time.monotonic() > end:
                return None
            await asyncio.sleep(_LOOK_SECONDS)


def is_by_id(exchange: Exchange) -> bool:
    """Tell whether a request names a response by its id."""
    return "id" in exchange.parameters and exchange.path.startswith(f"{PATH}/")


def _number(query: dict[str, str]) -> int:
    """Return how many events the client of a response has."""
    text = query.get("starting_after", "-1")
    try:
        return max(0, int(text) + 1)
    except ValueError:
        raise RequestError("is no whole number", field="starting_after", value=text) from None


def _latest(blocks: list[bytes], state: str, *, is_lasting: bool) -> dict[str, Any]:
    """Return a response as it is now: the complete one, or as it began."""
    form = BackgroundForm(is_stream=True) if is_lasting else ResponsesForm()
    data = b""
    for part in (part for block in blocks for part in parts_in(block)):
        if isinstance(part, msg.Failure):
            data += form.failure(error_of(part)).data
        else:
            data += form.write([part.chunk])
    responses = [*_responses_in(data)]
    if responses and responses[-1].get("status", _RUNNING[0]) not in _RUNNING:
        return responses[-1]
    response = next(iter(responses), {})
    if state == "cancelled":
        return response | {"status": "cancelled"}
    if state == "over" and is_lasting:
        error = {"code": "server_error", "message": "the answer has no end"}
        return response | {"status": "failed", "error": error}
    return response


def _responses_in(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the responses in the events of a stream."""
    for line in data.split(b"\n")[:-1]:
        if line.startswith(b"data: {") and b'"response":' in line:
            response = json.loads(line[5:]).get("response")
            if isinstance(response, dict):
                yield response
