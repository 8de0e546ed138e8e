"""Answers that another front end had begun, for clients that reconnect to this one.

The model has their chunks (`endpoint/kept.py`). The client sends its request again, and with it all
that makes its events of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.form import Restorable
from lmi_backend.clients.reply import AdapterChange
from lmi_backend.errors import HttpError, LmiError, UnavailableError
from lmi_backend.frontend.at_model import AtModel, RestoredForm
from lmi_backend.frontend.http.bodies import ClientGoneError, aside
from lmi_backend.frontend.relay import send_answer
from lmi_backend.ipc.rejoining import NOT_KEPT, Keep

if TYPE_CHECKING:
    from lmi_backend.clients.failure import ErrorResponse
    from lmi_backend.clients.spec import Path, Read
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.keeping import Keeping
    from lmi_backend.frontend.model import Model
    from lmi_backend.frontend.reading import Reading

_WAIT_SECONDS: Final = 5.0
"""Time in which a front end that starts finds the models."""
_LOOK_SECONDS: Final = 0.1


class Rejoining:
    """Continues the answers of other front ends.

    Args:
        reading: finds the model and reads what the first request wanted.
        keeping: keeps what comes of them.
    """

    def __init__(self, reading: Reading, keeping: Keeping) -> None:
        self._reading, self._keeping = reading, keeping
        self._coming: dict[str, asyncio.Event] = {}
        """Names of the answers that are being requested."""

    async def __call__(self, path: Path, exchange: Exchange, data: bytes) -> None:
        """Send a client the events after the one that it names.

        Raises:
            HttpError: nothing is kept there for this client (404).
            UnavailableError: the model is not there.
            ClientGoneError: the client left while it waited for the model.
        """
        name, _ = self._keeping.named(exchange)
        while (coming := self._coming.get(name)) is not None:
            await coming.wait()
        if exchange.has_left:
            # It would end the connection on which its client is back by now.
            raise ClientGoneError
        if self._keeping.has(exchange):
            await self._keeping.come_back(exchange, await owner_of(exchange, data))
            return
        coming = self._coming[name] = asyncio.Event()
        try:
            await self._rejoin(path, exchange, data)
        finally:
            self._over(name, coming)

    def _over(self, name: str, coming: asyncio.Event) -> None:
        if self._coming.get(name) is coming:
            del self._coming[name]
        coming.set()

    async def _rejoin(self, path: Path, exchange: Exchange, data: bytes) -> None:
        name, number = self._keeping.named(exchange)
        model, asked = await self._read(path, exchange, data)
        kept = self._keeping.again(exchange, model.info, name)
        if kept is None or isinstance(asked.work, AdapterChange):
            raise HttpError(HTTPStatus.NOT_FOUND, NOT_KEPT)
        kept.request = await owner_of(exchange, data)
        keep = Keep(name, kept.request, model.info.resume_window)
        answer = model.connection.rejoin(keep, asked.work, exchange.tenant or asked.tenant)
        kept.at_model = AtModel(kept, answer, asked.form)
        form = RestoredForm(asked.form) if isinstance(asked.form, Restorable) else asked.form
        coming = self._coming[name]

        def known() -> None:
            self._keeping.note_back(kept)
            self._over(name, coming)

        kept.when_known = known

        def failure(error: LmiError) -> ErrorResponse:
            return (asked.failure or exchange.spec.failure)(error)

        await kept.serve(send_answer(kept, answer, form, failure), number)

    async def _read(self, path: Path, exchange: Exchange, data: bytes) -> tuple[Model, Read]:
        """Read a request as the front end did that is gone."""
        end = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                return await self._reading.actions[path.action](path, exchange, data)
            except UnavailableError:
                if time.monotonic() > end:
                    raise
            except LmiError as error:
                # Its answer would not have begun, if this front end knows its model.
                if self._reading.models.are_complete or time.monotonic() > end:
                    raise HttpError(HTTPStatus.NOT_FOUND, NOT_KEPT) from error
            await asyncio.sleep(_LOOK_SECONDS)


async def owner_of(exchange: Exchange, data: bytes) -> str:
    """Return a digest of what two requests for one answer have in common: key, path and body."""
    begin = f"{exchange.key_digest} {exchange.path}\n".encode("utf-8", "surrogateescape")
    return await aside(len(data), _digest, begin, data)


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()
