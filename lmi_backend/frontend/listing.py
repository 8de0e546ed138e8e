"""What clients are told of the models: OpenAI's list, and what Text Generation Inference says."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models


class Listing:
    def __init__(self, models: Models) -> None:
        self._models = models

    async def models(self, exchange: Exchange) -> None:
        await self._models.catch_up()
        cards = [
            card
            for model in self._models.all()
            for card in _cards(model)
            if self._models.find(card["id"]) is model
        ]
        await exchange.respond_json({"object": "list", "data": cards})

    async def model(self, exchange: Exchange) -> None:
        name = exchange.parameters["model"]
        await self._models.catch_up()
        model = self._models.find(name)
        if model is None:
            raise self._models.unknown(name)
        (card,) = (card for card in _cards(model) if card["id"] == name)
        await exchange.respond_json(card)

    async def info(self, exchange: Exchange) -> None:
        info = (await self._models.of_body(exchange, "")).info
        body = {
            "model_id": root_of(info),
            "model_dtype": None,
            "max_input_tokens": info.max_model_len - 1,
            "max_total_tokens": info.max_model_len,
            "router": "lmi-backend",
            "version": info.version,
        }
        await exchange.respond_json(body)


def _cards(model: Model) -> list[dict[str, Any]]:
    info = model.info
    common = {"object": "model", "created": int(time.time()), "owned_by": "lmi-backend"}
    own = {"root": root_of(info), "parent": None, "max_model_len": info.max_model_len}
    names = dict.fromkeys((info.name, *info.served_names))
    cards = [{"id": name, **common, **own} for name in names]
    cards += [
        {"id": name, **common, "root": name, "parent": info.name, "max_model_len": None}
        for name in model.context.adapters
    ]
    return cards


def root_of(info: ModelInfo) -> str:
    """Return what a client may know of the origin of a model: its id, not a folder here."""
    return info.name if os.path.isabs(info.root) else info.root
