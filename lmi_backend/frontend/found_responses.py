"""Responses that another front end has begun, whose clients name them by their ids.

The model keeps them (`endpoint/kept.py`) and finds them by the id and the key together. Here they
are read again from their beginning, and belong to this front end from then on.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.responses.background import PATH, BackgroundForm
from lmi_backend.errors import HttpError, UnavailableError
from lmi_backend.frontend.at_model import AtModel
from lmi_backend.frontend.background_answer import BackgroundAnswer
from lmi_backend.frontend.http.bodies import ClientGoneError
from lmi_backend.frontend.kept_responses import NO_RESPONSE, alias_of
from lmi_backend.frontend.relay import send_answer

if TYPE_CHECKING:
    from lmi_backend.frontend.connection import ModelConnection
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.keeping import Keeping
    from lmi_backend.frontend.kept_answer import KeptAnswer
    from lmi_backend.frontend.kept_responses import KeptResponses
    from lmi_backend.frontend.model import Model
    from lmi_backend.frontend.models import Models
    from lmi_backend.ipc.rejoining import Keep

_WAIT_SECONDS: Final = 5.0
"""Time in which a front end that starts finds the models."""
_LOOK_SECONDS: Final = 0.1


class FoundResponses:
    """Takes over the responses of other front ends.

    Args:
        models: those that may keep them.
        keeping: keeps them here then.
        responses: finds those that are here.
    """

    def __init__(self, models: Models, keeping: Keeping, responses: KeptResponses) -> None:
        self._models, self._keeping, self._responses = models, keeping, responses
        self._coming: dict[str, asyncio.Event] = {}
        """Aliases of those that are being looked for."""

    async def find(self, exchange: Exchange) -> KeptAnswer | None:
        """Return the response that a path names, from wherever it is kept.

        Returns:
            None if no model keeps it for this client, and in the rare case that it was deleted
            meanwhile: then the client has been told.

        Raises:
            HttpError: the client has deleted it (404).
            ClientGoneError: the client left meanwhile.
        """
        alias = alias_of(exchange.key_digest, exchange.parameters["id"])
        while (coming := self._coming.get(alias)) is not None:
            await coming.wait()
        if (kept := self._responses.find(exchange)) is not None:
            return kept
        coming = self._coming[alias] = asyncio.Event()
        try:
            found = await self._ask(alias)
            if exchange.has_left:
                raise ClientGoneError
            return await self._take(exchange, *found) if found is not None else None
        finally:
            del self._coming[alias]
            coming.set()

    async def _ask(self, alias: str) -> tuple[Model, Keep, bool] | None:
        """Return the model that keeps an answer, how, and whether its client has cancelled it."""
        end = time.monotonic() + _WAIT_SECONDS
        asked: list[ModelConnection] = []
        while True:
            for model in self._models.all():
                if model.connection in asked or not model.info.resume_window:
                    continue
                asked.append(model.connection)
                try:
                    found = await model.connection.questions.find(alias)
                except UnavailableError:
                    continue
                if found.is_deleted:
                    raise HttpError(HTTPStatus.NOT_FOUND, NO_RESPONSE)
                if found.keep is not None:
                    return model, found.keep, found.is_cancelled
            if (self._models.are_complete and self._models.all()) or time.monotonic() > end:
                return None
            await asyncio.sleep(_LOOK_SECONDS)

    async def _take(
        self, exchange: Exchange, model: Model, keep: Keep, is_cancelled: bool
    ) -> KeptAnswer | None:
        exchange.model = model.name
        lasting = keep.is_lasting
        kept = self._keeping.again(exchange, model.info, keep.name, is_lasting=lasting)
        if kept is None:
            return None
        kept.owner, kept.request = (exchange.key_digest, PATH), keep.owner
        if is_cancelled and isinstance(kept, BackgroundAnswer):
            kept.cancel()
        form = BackgroundForm(is_stream=True) if lasting else exchange.spec.form()
        answer = model.connection.rejoin(keep)
        kept.at_model = AtModel(kept, answer, form)
        sending = send_answer(kept, answer, form, exchange.spec.failure)
        if not await kept.begin(sending, 1):
            return None
        while (answer.is_behind or answer.is_over) and not kept.is_over:
            await kept.next()
        kept.detach(exchange)
        return kept
