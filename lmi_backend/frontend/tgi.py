"""The paths of Text Generation Inference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.engine_config import ClientSettings
from lmi_backend.errors import RequestError
from lmi_backend.frontend.failures import tgi_failure
from lmi_backend.frontend.lmi import form_of
from lmi_backend.frontend.openai import read_object
from lmi_backend.frontend.relay import send_answer
from lmi_backend.schema.lmi import read_lmi

if TYPE_CHECKING:
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models


_AS_TGI: Final = ClientSettings(tgi_compat=True, dialect="legacy")


class Tgi:
    """Reads bodies of `inputs` and `parameters`, and answers in its server's words."""

    def __init__(self, models: Models, limit: int, seconds: float) -> None:
        self._models, self._limit, self._seconds = models, limit, seconds

    async def generate(self, exchange: Exchange) -> None:
        """Answer with one object."""
        await self._answer(exchange, stream=False)

    async def generate_stream(self, exchange: Exchange) -> None:
        """Answer with an event a token."""
        await self._answer(exchange, stream=True)

    async def either(self, exchange: Exchange) -> None:
        """Answer as the body's `stream` says."""
        await self._answer(exchange, stream=None)

    async def info(self, exchange: Exchange) -> None:
        """Say which model is served."""
        said = self._model("").info
        body = {
            "model_id": said.root,
            "model_dtype": None,
            "max_input_tokens": said.max_model_len - 1,
            "max_total_tokens": said.max_model_len,
            "router": "lmi-backend",
            "version": said.version,
        }
        data = msgspec.json.encode(body)
        await exchange.respond(200, data, {"content-type": "application/json"})

    async def _answer(self, exchange: Exchange, *, stream: bool | None) -> None:
        body = read_object(await exchange.body(self._limit, self._seconds))
        if "inputs" not in body:
            raise RequestError("is missing", field="inputs", accepted="a text")
        named: dict[str, Any] = dict(body.get("parameters") or {})
        named["stream"] = bool(body.get("stream")) if stream is None else stream
        model = self._model(str(body.get("model") or ""))
        # Its answers have the LMI formatter's form for this client.
        context = replace(model.context, clients=_AS_TGI)
        parsed = read_lmi(body["inputs"], named, context, is_body=True)
        if not isinstance(parsed.work, tuple):
            raise RequestError("is not a text", field="inputs")
        answer = model.connection.submit(parsed.work, exchange.tenant)
        await send_answer(exchange, answer, form_of(parsed), tgi_failure)

    def _model(self, name: str) -> Model:
        return self._models.of_body(name)
