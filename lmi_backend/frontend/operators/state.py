"""What every model does now, for the page and for those who watch a server."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from lmi_backend import __version__
from lmi_backend.errors import HttpError, LmiError
from lmi_backend.frontend.outages import AWAY

if TYPE_CHECKING:
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models

_log = logging.getLogger(__name__)


async def show(models: Models, exchange: Exchange) -> None:
    """Answer `GET /api/state`: the state of each model, and the front end's counts.

    `?log_after.MODEL=N` adds the lines of that model's log whose numbers are above N.
    """
    parameters = dict(parse_qsl(exchange.query))
    loaded, held = models.all(), models.outage_counts()
    away = [{"model": name, "error": AWAY} for name in models.outages.awaited]
    failed = [{"model": name, "error": reason} for name, reason in models.starting.failed.items()]
    loads = [
        {"model": name, "error": loading.text, "loading": loading._asdict()}
        for name, loading in models.progress().items()
        if name not in models.outages.awaited
    ]
    # Last: one that goes meanwhile has one row, not two.
    states = await asyncio.gather(
        *(_state(model, _number(parameters.get(f"log_after.{model.name}"))) for model in loaded)
    )
    rows = (*states, *away, *failed, *loads)
    for model, state in zip(loaded, states, strict=True):
        if names := state.get("served_names"):
            state["served_names"] = [each for each in names if models.find(each) is model]
    counted = [{**each, "front_end": held.get(each["model"], {})} for each in rows]
    body = {"version": __version__, "models": counted}
    await exchange.respond_json(body, headers={"cache-control": "no-store"})


async def _state(model: Model, log_after: int) -> dict[str, Any]:
    try:
        return await model.connection.requests.state(log_after)
    except LmiError as error:
        return {"model": model.name, "error": str(error)}


def _number(text: str | None) -> int:
    if text is None:
        return -1
    try:
        return max(0, int(text))
    except ValueError:
        raise HttpError(HTTPStatus.BAD_REQUEST, "log_after is a whole number") from None
