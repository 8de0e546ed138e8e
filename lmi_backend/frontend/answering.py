"""Answer bodies as their client's spec says."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.dropped import DroppedParameters
from lmi_backend.clients.form import EVENTS
from lmi_backend.clients.lmi.handler_form import HandlerForm
from lmi_backend.clients.reply import AdapterChange
from lmi_backend.clients.responses.background import PATH, BackgroundForm
from lmi_backend.clients.spec import INVOKE, READ, RELAY, STORED, UPLOAD
from lmi_backend.clients.tracing import PARENT, take_trace, with_trace
from lmi_backend.errors import HttpError
from lmi_backend.frontend.adapters import manage
from lmi_backend.frontend.at_model import AtModel
from lmi_backend.frontend.background_answer import BackgroundAnswer
from lmi_backend.frontend.found_responses import FoundResponses
from lmi_backend.frontend.keeping import LAST_ID
from lmi_backend.frontend.kept_responses import NO_RESPONSE, KeptResponses, check_own_id, is_by_id
from lmi_backend.frontend.rejoining import Rejoining, owner_of
from lmi_backend.frontend.relay import send_answer
from lmi_backend.ipc.rejoining import Keep

if TYPE_CHECKING:
    from lmi_backend.clients.spec import Path, Read
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.keeping import Keeping
    from lmi_backend.frontend.kept_answer import KeptAnswer
    from lmi_backend.frontend.model import Model
    from lmi_backend.frontend.reading import Reading


class Answering:
    """Reads a body, finds its model, sends it the request, and writes the answer.

    Args:
        reading: finds the model and reads what it is to do.
        keeping: keeps answers for clients that reconnect.
        limit: bytes of a body.
        seconds: time a body may take to come.
    """

    resumed: Final = frozenset({READ, RELAY, INVOKE, STORED})
    """Actions of the paths whose streams a client may resume."""

    def __init__(self, reading: Reading, keeping: Keeping, limit: int, seconds: float) -> None:
        self._reading, self._limit, self._seconds = reading, limit, seconds
        self._keeping, self._responses = keeping, KeptResponses(keeping)
        self._rejoining = Rejoining(reading, keeping)
        self._found = FoundResponses(reading.models, keeping, self._responses)
        self._dropped = DroppedParameters()

    async def __call__(self, path: Path, exchange: Exchange) -> None:
        """Answer a request that came to a path of one of the reader's actions.

        Raises:
            HttpError: it names a response that is not kept, and there are several models (404).
        """
        if is_by_id(exchange) and len(self._reading.models.all()) > 1:
            # No model is named on these paths: none of several is asked.
            raise HttpError(HTTPStatus.NOT_FOUND, NO_RESPONSE)
        read = exchange.body if path.action == UPLOAD else exchange.text
        data = await read(self._limit, self._seconds)
        model, asked = await self._reading.actions[path.action](path, exchange, data)
        keep, kept = None, self._kept(exchange, model, asked)
        if kept is not None:
            await check_own_id(exchange, data)
            kept.request = await owner_of(exchange, data)
            if _may_be_events(asked):
                lasts = isinstance(kept, BackgroundAnswer)
                keep = Keep(kept.name, kept.request, model.info.resume_window, is_lasting=lasts)
        await self._send(exchange, model, asked, kept, keep)

    def _kept(self, exchange: Exchange, model: Model, asked: Read) -> KeptAnswer | None:
        """Return what keeps an answer; None if it is not to be kept."""
        if isinstance(asked.form, BackgroundForm):
            is_stream = asked.form.is_stream
            return self._keeping.in_background(exchange, model.info, is_stream=is_stream)
        return None if _is_own(asked) else self._keeping.open(exchange, model.info)

    def has(self, exchange: Exchange) -> bool:
        """Tell whether a request is about an answer of its client that is kept here."""
        if is_by_id(exchange):
            return self._responses.find(exchange) is not None
        return exchange.method == "POST" and self._keeping.has_of(exchange)

    async def come_back(self, path: Path, exchange: Exchange) -> bool:
        """Answer a request about a kept answer; return false if it is about none.

        Raises as `FoundResponses`, `Rejoining` and `KeptResponses` do.
        """
        if is_by_id(exchange):
            kept = await self._found.find(exchange)
            if kept is not None:
                await exchange.text(self._limit, self._seconds)
                await self._responses.answer(exchange, kept)
            return bool(exchange.status)
        if LAST_ID not in exchange.headers or exchange.method != "POST":
            return False
        # The request was read when the answer began, unless another front end did so.
        data = await exchange.text(self._limit, self._seconds)
        if self._keeping.has(exchange):
            await self._keeping.come_back(exchange, await owner_of(exchange, data))
        else:
            await self._rejoining(path, exchange, data)
        return True

    async def _send(
        self,
        exchange: Exchange,
        model: Model,
        asked: Read,
        kept: KeptAnswer | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._dropped.note(asked.dropped)
        if isinstance(asked.work, AdapterChange):
            answer = manage(exchange, model, asked.work.body)
        else:
            trace = take_trace(dict(exchange.headers)) if PARENT in exchange.headers else {}
            work = with_trace(asked.work, trace)
            tenant = exchange.tenant or asked.tenant
            answer = model.connection.submit(work, tenant, keep, exchange.request_id)
        failure = asked.failure or exchange.spec.failure
        if kept is None:
            await send_answer(exchange, answer, asked.form, failure)
        else:
            if keep is not None:
                kept.at_model = AtModel(kept, answer, asked.form)
            sending = send_answer(kept, answer, asked.form, failure)
            if exchange.path != PATH:
                await kept.serve(sending)
            elif await kept.begin(sending, 1):
                await self._responses.begin(exchange, kept)


def _is_own(asked: Read) -> bool:
    """Tell whether users' code answers, whose events may have ids of their own."""
    return isinstance(asked.form, HandlerForm)


def _may_be_events(asked: Read) -> bool:
    """Tell whether the answer may be a stream of events; some formats know it later."""
    return asked.form.headers.get("content-type", EVENTS).startswith(EVENTS)
