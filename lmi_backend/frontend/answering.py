"""Answer bodies as their client's spec says."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from lmi_backend.clients.parameters import DroppedParameters
from lmi_backend.clients.request import PARENT, promise_of, session_of, take_trace, with_trace
from lmi_backend.clients.responses import BackgroundForm
from lmi_backend.clients.spec import INVOKE, READ, RELAY, STORED, UPLOAD, AdapterChange
from lmi_backend.errors import HttpError
from lmi_backend.frontend.answer import send_answer
from lmi_backend.frontend.lora_routes import manage
from lmi_backend.frontend.resumable import (
    LAST_ID,
    NO_RESPONSE,
    BeginningForm,
    ResumableForm,
    answer_stored,
    come_back,
    find_stored,
    is_by_id,
    order_of,
    send_resumable,
)

if TYPE_CHECKING:
    from lmi_backend.clients.spec import Path, Read
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model
    from lmi_backend.frontend.reading import Reading
    from lmi_backend.ipc.messages import Buffering


class Answering:
    """Reads a body, finds its model, sends it the request, and writes the answer."""

    resumed: Final = frozenset({READ, RELAY, INVOKE, STORED})
    """Actions of the paths whose streams a client may resume."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._dropped = DroppedParameters()

    async def __call__(self, path: Path, exchange: Exchange) -> None:
        """Answer a request that came to a path of one of the reader's actions.

        Raises:
            HttpError: it names a response that is not buffered, and there are several models (404).
        """
        if is_by_id(exchange) and len(self._reading.models.all()) > 1:
            # No model is named on these paths: none of several is asked.
            raise HttpError(HTTPStatus.NOT_FOUND, NO_RESPONSE)
        data = await (exchange.body() if path.action == UPLOAD else exchange.text())
        model, request = await self._reading.actions[path.action](path, exchange, data)
        order = await order_of(exchange, model.info, request, data)
        await self._send(exchange, model, request, order)

    def is_back(self, exchange: Exchange) -> bool:
        """Tell whether a request begins no answer: it is about one of its client's."""
        return is_by_id(exchange) or (exchange.method == "POST" and LAST_ID in exchange.headers)

    async def come_back(self, path: Path, exchange: Exchange) -> bool:
        """Answer a request about a buffered answer; return false if it is about none.

        Raises as `come_back`, `find_stored` and `answer_stored` do.
        """
        if not self.is_back(exchange):
            return False
        is_stored = is_by_id(exchange)
        stored = await find_stored(self._reading.models, exchange) if is_stored else None
        if is_stored and stored is None:
            return False
        data = await exchange.text()
        if stored is None:
            await come_back(self._reading, path, exchange, data)
        else:
            await answer_stored(exchange, *stored)
        return True

    async def _send(
        self,
        exchange: Exchange,
        model: Model,
        request: Read,
        order: Buffering | None = None,
    ) -> None:
        if request.dropped:
            self._dropped.note(request.dropped)
        if isinstance(request.work, AdapterChange):
            answer = manage(exchange, model, request.work.body)
        else:
            trace = take_trace(dict(exchange.headers)) if PARENT in exchange.headers else {}
            work = with_trace(request.work, trace)
            tenant = exchange.tenant or request.tenant
            named = session_of(exchange.headers), promise_of(exchange.headers)
            answer = model.connection.submit(work, tenant, order, exchange.request_id, *named)
        failure = request.failure or exchange.spec.failure
        if order is None:
            await send_answer(exchange, answer, request.form, failure)
            return
        form, begins = ResumableForm(request.form, order.name), None
        if isinstance(request.form, BackgroundForm) and not request.form.is_stream:
            begins = BeginningForm(form)
        await send_resumable(exchange, answer, form, failure, wrapped=begins)
