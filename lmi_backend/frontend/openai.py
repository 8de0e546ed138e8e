"""OpenAI's paths, and those that vLLM's own server has beside them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.errors import HttpError
from lmi_backend.frontend.adapters import manage
from lmi_backend.frontend.bodies import model_of, read_object
from lmi_backend.frontend.http_form import dialect_of
from lmi_backend.frontend.relay import send_answer
from lmi_backend.generation import HttpRequest
from lmi_backend.names import check_headers
from lmi_backend.schema.tracing import take_trace

if TYPE_CHECKING:
    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models

BODIES: Final = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
    "/v1/messages/count_tokens", "/tokenize", "/detokenize", "/pooling", "/classify", "/score",
    "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
)  # fmt: skip
"""Paths that take a body which names a model."""
TARGET: Final = "x-amzn-sagemaker-target-model"
"""The header by which clients that have no field for it name a model."""
_NO_NAMES: Final = ("tgi", "dummy")
"""What clients of Text Generation Inference, whose server does not look, give as a model."""
_JSON: Final = {"content-type": "application/json"}
_ENGINE_HEADERS: Final = ("x-request-id", "x-session-id", "x-correlation-id")
"""Headers that vLLM's server reads; the client's key and cookies do not go to an engine."""
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404


class OpenAi:
    """Relays bodies to the model that they name; the engine's own server code reads them."""

    def __init__(self, models: Models, limit: int, seconds: float) -> None:
        self._models, self._limit, self._seconds = models, limit, seconds

    async def body(self, exchange: Exchange) -> None:
        """Answer a body."""
        data = await exchange.body(self._limit, self._seconds)
        name = await model_of(data)
        if name in _NO_NAMES and self._models.find(name) is None:
            model = await self._models.of_body(exchange, exchange.headers.get(TARGET, ""))
            data = _dump(await read_object(data) | {"model": model.name})
        else:
            model = await self._models.of_body(exchange, name)
        await self._relay(exchange, model, HttpRequest(exchange.path, data, _headers(exchange)))

    async def stored(self, exchange: Exchange) -> None:
        """Answer for a response of `/v1/responses` by its id, where one model can have it."""
        method = exchange.method
        path = exchange.path + (f"?{exchange.query}" if exchange.query else "")
        request = HttpRequest(path, b"", _headers(exchange) | {":method": method})
        await self._relay(exchange, await self._models.of_body(exchange, ""), request)

    async def models(self, exchange: Exchange) -> None:
        """List all names that a body may have."""
        cards = [
            card
            for model in self._models.all()
            for card in _cards(model)
            if self._models.find(card["id"]) is model
        ]
        await exchange.respond(200, _dump({"object": "list", "data": cards}), _JSON)

    async def model(self, exchange: Exchange) -> None:
        """Show one of them."""
        name = exchange.parameters["model"]
        model = self._models.find(name)
        if model is None:
            raise self._models.unknown(name)
        (card,) = (card for card in _cards(model) if card["id"] == name)
        await exchange.respond(200, _dump(card), _JSON)

    async def load_adapter(self, exchange: Exchange) -> None:
        """Load a LoRA adapter, as vLLM's server does."""
        body = await read_object(await exchange.body(self._limit, self._seconds))
        name, folder = body.get("lora_name"), body.get("lora_path")
        if not name or not folder:
            text = "Both 'lora_name' and 'lora_path' must be provided."
            raise HttpError(_BAD_REQUEST, text)
        order = "UPDATE_ADAPTER" if body.get("load_inplace") else "REGISTER_ADAPTER"
        await self._manage(
            exchange, body, {"requestType": order, "name": name, "src": folder}, "added"
        )

    async def unload_adapter(self, exchange: Exchange) -> None:
        """Forget a LoRA adapter."""
        body = await read_object(await exchange.body(self._limit, self._seconds))
        name = body.get("lora_name")
        if not name:
            raise HttpError(_BAD_REQUEST, "'lora_name' needs to be provided to unload a adapter.")
        order = {"requestType": "UNREGISTER_ADAPTER", "name": name}
        await self._manage(exchange, body | {"model": body.get("model") or name}, order, "removed")

    async def _manage(
        self, exchange: Exchange, body: dict[str, Any], order: dict[str, object], done: str
    ) -> None:
        model = await self._models.of_body(exchange, str(body.get("model") or ""))
        answer = manage(exchange, model, order)
        try:
            await answer.read()
            answer.end()
        finally:
            answer.close()
        text = f"Success: LoRA adapter '{order['name']}' {done} successfully."
        await exchange.respond(200, text.encode(), {"content-type": "text/plain; charset=utf-8"})

    async def _relay(self, exchange: Exchange, model: Model, request: HttpRequest) -> None:
        dialect = dialect_of(exchange.path)
        answer = model.connection.submit(request, exchange.tenant)
        await send_answer(exchange, answer, dialect.form(), dialect.failure)


def _headers(exchange: Exchange) -> dict[str, str]:
    given = exchange.headers
    kept = {name: given[name] for name in _ENGINE_HEADERS if name in given}
    kept |= take_trace(dict(given))
    if exchange.request_id:
        kept["x-request-id"] = exchange.request_id
    if "content-type" in given:
        kept["content-type"] = given["content-type"]
    check_headers(kept)
    return kept


def _cards(model: Model) -> list[dict[str, Any]]:
    """Return what vLLM's server says of a model: its names, then its LoRA adapters."""
    said = model.info
    common = {"object": "model", "created": int(time.time()), "owned_by": "lmi-backend"}
    own = dict.fromkeys((said.name, *said.served_names))
    cards = [
        {
            "id": name,
            **common,
            "root": shown_root(said),
            "parent": None,
            "max_model_len": said.max_model_len,
        }
        for name in own
    ]
    cards += [
        {"id": name, **common, "root": name, "parent": said.name, "max_model_len": None}
        for name in model.welcome.adapters
    ]
    return cards


def shown_root(said: ModelInfo) -> str:
    """Return what a client may know of where a model comes from: its id, not a folder of ours."""
    return said.name if os.path.isabs(said.root) else said.root


def _dump(value: object) -> bytes:
    return msgspec.json.encode(value)
