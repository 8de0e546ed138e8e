"""What every model does now, for the page and for those who watch a server."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import msgspec

from lmi_backend import __version__
from lmi_backend.errors import HttpError, LmiError
from lmi_backend.frontend.held import AWAY

if TYPE_CHECKING:
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models

_ASK_SECONDS: Final = 2.0
_BAD_REQUEST: Final = 400
_HEADERS: Final = {"content-type": "application/json", "cache-control": "no-store"}
_log = logging.getLogger(__name__)


class State:
    """Asks every model."""

    def __init__(self, models: Models) -> None:
        self._models = models

    async def show(self, exchange: Exchange) -> None:
        """Answer `GET /api/state`: each model's, with what the front end counts beside it.

        `?log_after.MODEL=N` adds the lines of that model's log whose numbers are above N.
        """
        asked = {name: values[-1] for name, values in parse_qs(exchange.query).items()}
        models, held = self._models.all(), self._models.held_counts()
        said = await asyncio.gather(
            *(_state(model, _number(asked.get(f"log_after.{model.name}"))) for model in models)
        )
        away = [{"model": name, "error": AWAY} for name in self._models.awaited]
        shown = [{**each, "front_end": held.get(each["model"], {})} for each in (*said, *away)]
        body = {"version": __version__, "models": shown}
        await exchange.respond(200, msgspec.json.encode(body), _HEADERS)


async def _state(model: Model, log_after: int) -> dict[str, Any]:
    try:
        return await asyncio.wait_for(model.connection.state(log_after), _ASK_SECONDS)
    except asyncio.TimeoutError:
        return {"model": model.name, "error": "its process does not answer"}
    except LmiError as error:
        return {"model": model.name, "error": str(error)}


def _number(text: str | None) -> int:
    if text is None:
        return -1
    try:
        return max(0, int(text))
    except ValueError:
        raise HttpError(_BAD_REQUEST, "log_after is a whole number") from None
