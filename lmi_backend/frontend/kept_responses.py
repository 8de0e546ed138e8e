"""Streams of `/v1/responses` that are kept, which OpenAI's clients resume by the response's id."""

from __future__ import annotations

import hashlib
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import msgspec

from lmi_backend.clients.form import JSON
from lmi_backend.clients.responses.background import PATH
from lmi_backend.errors import EngineError, RequestError
from lmi_backend.frontend.background_answer import BackgroundAnswer
from lmi_backend.frontend.http.bodies import read_object

if TYPE_CHECKING:
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.keeping import Keeping
    from lmi_backend.frontend.kept_answer import KeptAnswer

NO_RESPONSE: Final = "no response of this id is kept for this key (option.resume_window)"
_ID: Final = b'"request_id"'
_TRUE: Final = ("true", "1")
_RUNNING: Final = ("in_progress", "queued")


class KeptResponses:
    """Finds kept streams by the ids of their responses.

    Args:
        keeping: holds the streams.
    """

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping

    def find(self, exchange: Exchange) -> KeptAnswer | None:
        """Return the stream whose response a path names, for the client that began it."""
        name = exchange.parameters.get("id", "")
        streams = self._keeping.of_path(exchange.key_digest, PATH)
        return next((each for each in streams if _created(each).get("id") == name), None)

    async def answer(self, exchange: Exchange, kept: KeptAnswer) -> None:
        """Answer a request for the rest of a stream or its response, or to cancel or delete it.

        Raises:
            RequestError: `starting_after` is no number.
            HttpError: what follows is not kept (404).
        """
        query = {name: values[-1] for name, values in parse_qs(exchange.query).items()}
        if exchange.method == "GET" and query.get("stream", "").lower() in _TRUE:
            await self._keeping.follow(exchange, kept, _number(query))
            return
        if isinstance(kept, BackgroundAnswer) and exchange.method == "POST":
            kept.cancel()
        response = _latest(kept)
        if exchange.method == "DELETE":
            response = {"id": response.get("id"), "object": "response", "deleted": True}
        elif exchange.method == "POST" and not kept.is_over:
            response |= {"status": "cancelled"}
        if isinstance(kept, BackgroundAnswer) and exchange.method != "DELETE":
            kept.touch()
        elif exchange.method != "GET":
            self._keeping.forget(kept)
        if exchange.method != "GET":
            # What the model was told before, it knows then, whoever is asked next.
            await self.name(kept, is_deleted=exchange.method == "DELETE")
        await exchange.respond(HTTPStatus.OK, msgspec.json.encode(response), {"content-type": JSON})

    async def name(self, kept: KeptAnswer, *, is_deleted: bool = False) -> None:
        """Have the model know the id of a response before its client does: others find it then.

        If it is deleted, nobody finds it.
        """
        name = _created(kept).get("id")
        if isinstance(name, str) and kept.at_model is not None:
            alias = alias_of(kept.owner[0], name)
            await kept.at_model.answer.call(alias, is_deleted=is_deleted)

    async def begin(self, exchange: Exchange, kept: KeptAnswer) -> None:
        """Answer the first request for a response, which has begun.

        Raises:
            EngineError: it has failed before the engine said anything of it.
        """
        await self.name(kept)
        if not isinstance(kept, BackgroundAnswer) or kept.is_stream:
            await kept.follow(exchange, 0)
            return
        kept.detach(exchange)
        if not (response := _latest(kept)):
            raise EngineError("the response failed before it began")
        await exchange.respond(HTTPStatus.OK, msgspec.json.encode(response), {"content-type": JSON})


async def check_own_id(exchange: Exchange, data: bytes) -> None:
    """Refuse a body that chooses the id of a response which is kept: another may have it.

    Raises:
        RequestError: it does so.
    """
    if exchange.path == PATH and _ID in data and (await read_object(data)).get("request_id"):
        raise RequestError(
            "would be the id of a response that is kept", field="request_id", accepted="nothing"
        )


def is_by_id(exchange: Exchange) -> bool:
    """Tell whether a request names a response by its id."""
    return "id" in exchange.parameters and exchange.path.startswith(f"{PATH}/")


def alias_of(key_digest: str, name: str) -> str:
    """Return by what a model finds a response: its id, and the key that began it."""
    text = f"{key_digest} {PATH}/\n{name}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _number(query: dict[str, str]) -> int:
    """Return the number of the last event that a client has; they count from 0, ours from 1."""
    text = query.get("starting_after", "-1")
    try:
        return int(text) + 1
    except ValueError:
        raise RequestError("is no whole number", field="starting_after", value=text) from None


def _created(kept: KeptAnswer) -> dict[str, Any]:
    """Return the response as the stream began with it; empty if that is not kept."""
    if kept.created is None:
        kept.created = _response_in(kept, 0)
    return kept.created


def _latest(kept: KeptAnswer) -> dict[str, Any]:
    """Return the response as it is now: the complete one, or as it began."""
    # A failure is two events: the response, and the error.
    for number in (kept.events.count - 1, kept.events.count - 2):
        response = _response_in(kept, number)
        if response.get("status", _RUNNING[0]) not in _RUNNING:
            return response
    response = dict(_created(kept))
    if response and isinstance(kept, BackgroundAnswer):
        if kept.is_cancelled:
            response["status"] = "cancelled"
        elif kept.is_over:
            error = {"code": "server_error", "message": "the answer has no end"}
            response |= {"status": "failed", "error": error}
    return response


def _response_in(kept: KeptAnswer, number: int) -> dict[str, Any]:
    """Return the response in the event after one; empty if that event has none."""
    if number < 0 or not kept.events.has(number):
        return {}
    data, _ = kept.events.after(number)
    for line in data.split(b"\n"):
        if line.startswith(b"data: {"):
            response = json.loads(line[5:]).get("response")
            return response if isinstance(response, dict) else {}
    return {}
