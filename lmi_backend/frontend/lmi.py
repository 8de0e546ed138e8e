"""LMI's and SageMaker's paths."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from lmi_backend.errors import HttpError
from lmi_backend.frontend.adapters import form_for, manage
from lmi_backend.frontend.bodies import aside, check_values, model_of, read_object
from lmi_backend.frontend.failures import lmi_failure
from lmi_backend.frontend.http_form import HandlerForm, HttpForm
from lmi_backend.frontend.openai import TARGET
from lmi_backend.frontend.relay import ReplyForm, answers_of, send_answer
from lmi_backend.generation import HttpRequest
from lmi_backend.names import check_headers
from lmi_backend.schema.body import LMI_PATH, read_http_body
from lmi_backend.schema.body_reply import LmiBodyReply
from lmi_backend.schema.reply import AdapterChange
from lmi_backend.schema.tracing import take_trace, with_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.errors import LmiError
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.failures import Failure
    from lmi_backend.frontend.models import Model, Models
    from lmi_backend.frontend.relay import Form
    from lmi_backend.schema.context import Context
    from lmi_backend.schema.reply import ParsedRequest

_COMPONENT: Final = "x-amzn-sagemaker-inference-component"
_NOT_FOR_MODELS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
"""The client's secrets, which are for us, or for what is before us."""
_MANAGEMENT: Final = b"_ADAPTER"
"""In each body that changes adapters."""
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_FAILED: Final = 424


class Lmi:
    """Reads LMI's bodies; OpenAI's, and users' own, go to the worker as they are."""

    def __init__(self, models: Models, limit: int, seconds: float) -> None:
        self._models, self._limit, self._seconds = models, limit, seconds

    async def invocations(self, exchange: Exchange) -> None:
        """Answer a body for the model that the path, a header or the body names."""
        model, parsed = await self.read(exchange)
        await self.answer(exchange, model, parsed)

    async def read(self, exchange: Exchange) -> tuple[Model, ParsedRequest]:
        """Read a body; return what it asks, and of which model.

        Raises:
            LmiError: the body is wrong, or there is no such model.
        """
        data = await exchange.body(self._limit, self._seconds)
        model = await self._model(exchange, data)
        headers = {n: v for n, v in exchange.headers.items() if n not in _NOT_FOR_MODELS}
        check_headers(headers)
        # Users' code reads its bodies itself.
        if not model.context.is_custom or _MANAGEMENT in data:
            await check_values(data)
        return model, await aside(len(data), _parsed, data, headers, model.context)

    async def adapters(self, exchange: Exchange) -> None:
        """Answer LMI's and SageMaker's management of LoRA adapters."""
        body: dict[str, Any] = dict(parse_qsl(exchange.query))
        if exchange.method in ("POST", "PUT") and exchange.headers.get("content-length") != "0":
            data = await exchange.body(self._limit, self._seconds)
            body |= await read_object(data) if data else {}
        name = exchange.parameters.get("adapter", "")
        if name:
            body["name"] = name
        words = {"GET": "DESCRIBE" if name else "LIST", "POST": "REGISTER", "PUT": "UPDATE",
                 "DELETE": "UNREGISTER"}  # fmt: skip
        kind = words[exchange.method]
        order = f"{kind}_ADAPTER" + ("S" if kind == "LIST" else "")
        model = await self._named(exchange, exchange.parameters.get("model", ""))
        answer = manage(exchange, model, body | {"requestType": order})
        await send_answer(exchange, answer, form_for(exchange), lmi_failure)

    async def answer(
        self,
        exchange: Exchange,
        model: Model,
        parsed: ParsedRequest,
        wrap: Callable[[Form], Form] = lambda form: form,
        failure_of: Callable[[LmiError], Failure] = lmi_failure,
    ) -> None:
        """Send the answer to what `read` returned.

        Args:
            wrap: makes what the client gets of what LMI's clients would get.
            failure_of: makes the response of an error that comes before anything else.
        """
        if isinstance(parsed.work, AdapterChange):
            answer = manage(exchange, model, parsed.work.body)
            await send_answer(exchange, answer, wrap(form_for(exchange)), failure_of)
            return
        if not isinstance(parsed.work, HttpRequest | tuple):
            raise HttpError(_NOT_FOUND, "there is nothing to cancel")
        work = with_trace(parsed.work, take_trace(dict(exchange.headers)))
        if isinstance(work, HttpRequest) and work.path != LMI_PATH:
            # OpenAI's body was told by its fields; its client may have named any type.
            headers = {**work.headers, "content-type": "application/json"}
            work = HttpRequest(work.path, work.body, headers)
        answer = model.connection.submit(work, exchange.tenant or parsed.tenant)
        await send_answer(exchange, answer, wrap(form_of(parsed)), failure_of)

    async def _model(self, exchange: Exchange, data: bytes) -> Model:
        headers = exchange.headers
        named = exchange.parameters.get("model") or headers.get(TARGET) or headers.get(_COMPONENT)
        if named:
            return await self._named(exchange, named.removesuffix(".tar.gz").strip("/"))
        endpoint = exchange.parameters.get("endpoint", "")
        for name in (endpoint, ""):
            if (model := await self._models.reach(exchange, name)) is not None:
                return model
        return await self._models.of_body(exchange, await _model_named_in(data) or endpoint)

    async def _named(self, exchange: Exchange, name: str) -> Model:
        if (model := await self._models.reach(exchange, name)) is None:
            raise self._models.unknown(name)
        return model


def form_of(parsed: ParsedRequest) -> Form:
    """Return what makes a response of the answer to a parsed request."""
    reply, work = parsed.reply, parsed.work
    if isinstance(work, HttpRequest) and work.path == LMI_PATH:
        return HandlerForm()
    if not isinstance(reply, LmiBodyReply):
        return HttpForm()
    return ReplyForm(reply, answers_of(work), reply.content_type, reply.in_the_middle)


def _parsed(data: bytes, headers: dict[str, str], context: Context) -> ParsedRequest:
    return read_http_body(_text(data), LMI_PATH, headers, context)


async def _model_named_in(data: bytes) -> str:
    try:
        return await model_of(data)
    except HttpError as error:
        if error.status != _BAD_REQUEST:
            raise
        # As where there is one model, which reads the body itself.
        raise _step_failed(str(error)) from error


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _step_failed(f"the body is not UTF-8: {error}") from error


def _step_failed(text: str) -> HttpError:
    """Return the error of a body that cannot be read, as LMI's clients know it."""
    return HttpError(_FAILED, json.dumps({"code": _FAILED, "error": text}))
