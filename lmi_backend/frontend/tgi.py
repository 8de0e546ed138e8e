"""The paths of Text Generation Inference."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.engine_config import ClientSettings
from lmi_backend.errors import RequestError
from lmi_backend.frontend.bodies import aside, read_object
from lmi_backend.frontend.failures import tgi_failure
from lmi_backend.frontend.openai import TARGET, shown_root
from lmi_backend.frontend.relay import send_answer
from lmi_backend.frontend.tgi_form import TgiForm
from lmi_backend.schema.body_reply import LmiBodyReply
from lmi_backend.schema.lmi import LmiReply, read_lmi

if TYPE_CHECKING:
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.models import Models

_DEFAULTS: Final[dict[str, Any]] = {"max_new_tokens": 100, "include_stop_str_in_output": True}
"""Of its server: a stop sequence is part of the text that it ends."""
_SETTINGS: Final = ClientSettings(dialect="legacy")
_SAMPLING: Final = frozenset({"temperature", "top_k", "top_p", "typical_p"})


class Tgi:
    """Reads bodies of `inputs` and `parameters`, and answers in its server's words."""

    def __init__(self, models: Models, limit: int, seconds: float) -> None:
        self._models, self._limit, self._seconds = models, limit, seconds

    async def generate(self, exchange: Exchange) -> None:
        """Answer with one object."""
        await self._answer(exchange, stream=False, is_list=False)

    async def generate_stream(self, exchange: Exchange) -> None:
        """Answer with an event a token."""
        await self._answer(exchange, stream=True, is_list=False)

    async def either(self, exchange: Exchange) -> None:
        """Answer as the body's `stream` says; with a list of one object, or with events."""
        await self._answer(exchange, stream=None, is_list=True)

    async def info(self, exchange: Exchange) -> None:
        """Say which model is served."""
        said = (await self._models.of_body(exchange, "")).info
        body = {
            "model_id": shown_root(said),
            "model_dtype": None,
            "max_input_tokens": said.max_model_len - 1,
            "max_total_tokens": said.max_model_len,
            "router": "lmi-backend",
            "version": said.version,
        }
        data = msgspec.json.encode(body)
        await exchange.respond(200, data, {"content-type": "application/json"})

    async def _answer(self, exchange: Exchange, *, stream: bool | None, is_list: bool) -> None:
        data = await exchange.body(self._limit, self._seconds)
        body = await read_object(data)
        if not isinstance(body.get("inputs"), str):
            raise RequestError("is missing, or is not a string", field="inputs")
        given = body.get("parameters") or {}
        if not isinstance(given, dict):
            raise RequestError("is not an object", field="parameters", value=given)
        named = _DEFAULTS | {n: v for n, v in given.items() if v is not None}
        named["stream"] = bool(body.get("stream")) if stream is None else stream
        if named["stream"] and named.get("best_of", 1) != 1:
            raise RequestError("is not for streams", field="best_of", value=named["best_of"])
        # Its server samples where one of these is given, whatever `do_sample` says.
        if not _SAMPLING.isdisjoint(named):
            named["do_sample"] = True
        name = str(body.get("model") or exchange.headers.get(TARGET, ""))
        model = await self._models.of_body(exchange, name)
        context = replace(model.context, clients=_SETTINGS)
        read = partial(read_lmi, is_body=True)
        parsed = await aside(len(data), read, body["inputs"], named, context)
        reply = parsed.reply.inner if isinstance(parsed.reply, LmiBodyReply) else parsed.reply
        if not isinstance(parsed.work, tuple) or not isinstance(reply, LmiReply):
            raise RequestError("is not a text", field="inputs")
        answer = model.connection.submit(parsed.work, exchange.tenant)
        form = TgiForm(reply.requested, is_list=is_list, failure_of=tgi_failure)
        await send_answer(exchange, answer, form, tgi_failure)
