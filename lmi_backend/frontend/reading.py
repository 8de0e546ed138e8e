"""Find the model that a request is for, and read what it has to do."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from lmi_backend.clients import responses
from lmi_backend.clients.lmi import INVOCATIONS, form_of, streamed
from lmi_backend.clients.registry import SHARED
from lmi_backend.clients.request import (
    ADAPTER,
    changes_adapters,
    pass_on,
    read_http_body,
)
from lmi_backend.clients.sagemaker import target_of
from lmi_backend.clients.spec import (
    INVOKE,
    READ,
    RELAY,
    STORED,
    TARGET,
    UPLOAD,
    AdapterChange,
    Path,
    Read,
)
from lmi_backend.errors import HttpError
from lmi_backend.frontend.http.bodies import (
    aside,
    model_in_upload,
    read_model,
    read_object,
    refuse_many_values,
)
from lmi_backend.frontend.lora_routes import change_of, load_of, unload_of
from lmi_backend.generation import HttpRequest
from lmi_backend.json_text import MOST_VALUES
from lmi_backend.names import check_headers
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from lmi_backend.clients.spec import ParsedRequest
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models

_Reader = Callable[[Path, "Exchange", bytes], Awaitable[tuple["Model", Read]]]

_NO_NAMES: Final = ("tgi", "dummy")
"""What clients of Text Generation Inference, whose server does not look, give as a model."""
_IS_URL: Final = re.compile(r"https?://", re.IGNORECASE).match
"""Their library for JavaScript gives the URL that it sends to."""
_ENGINE_HEADERS: Final = ("x-request-id", "x-session-id", "x-correlation-id")
"""Headers that vLLM's server reads; the client's key and cookies do not go to an engine."""
_NOT_FOR_MODELS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
"""The client's secrets, which are for us, or for what is before us."""


class Reading:
    """Reads requests; each reader raises LmiError where one is wrong or its model is unknown."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self.actions: dict[str, _Reader] = {
            READ: self._object,
            RELAY: self._relayed,
            STORED: self._stored,
            UPLOAD: self._uploaded,
            INVOKE: self._invoked,
            "adapters": self._adapters,
            "load adapter": self._load_adapter,
            "unload adapter": self.unload_adapter,
        }
        """Readers by the actions that the clients' paths name."""

    async def _object(self, path: Path, exchange: Exchange, data: bytes) -> tuple[Model, Read]:
        body = read_object(data)
        name = exchange.spec.model_named(body, exchange.headers)
        if self._is_no_name(name):
            name = ""
        model = await self.models.of_body(exchange, name)
        if path.read is None:
            raise TypeError(path)
        return model, await aside(len(data), path.read, body, model.context_of(name))

    async def _relayed(self, path: Path, exchange: Exchange, data: bytes) -> tuple[Model, Read]:
        """Leave the body to the engine's own server code, if it is of that code's clients."""
        if (shared := SHARED.get(path.template)) and shared[1].member in read_object(data):
            exchange.spec, theirs = shared
            return await self._object(theirs, exchange, data)
        # The largest bound that any model's worker has.
        lengths = (each.info.max_model_len for each in self.models.all())
        refuse_many_values(data, max(MOST_VALUES, 2 * max(lengths, default=0)))
        name = read_model(data)
        target, adapter = exchange.headers.get(TARGET, ""), exchange.headers.get(ADAPTER, "")
        if is_unnamed := self._is_no_name(name):
            model = await self.models.of_body(exchange, target)
            adapter = adapter or model.context_of(target).adapter
        else:
            model = await self.models.of_body(exchange, name)
        if adapter or is_unnamed:
            named = {"model": adapter or model.name}
            data = msgspec.json.encode(read_object(data) | named)
        form = exchange.spec.form()
        if path.template == responses.PATH and responses.MARK in data:
            body = read_object(data)
            if model.info.resume_window and responses.wants_background(body):
                data = msgspec.json.encode({**body, responses.MEMBER: False, "stream": True})
                form = responses.BackgroundForm(is_stream=body.get("stream") is True)
        return model, Read(HttpRequest(exchange.path, data, _engine_headers(exchange)), form)

    def _is_no_name(self, name: str) -> bool:
        """Tell whether a client that names no model gave this as one."""
        return (name in _NO_NAMES or _IS_URL(name) is not None) and self.models.find(name) is None

    async def _stored(self, _path: Path, exchange: Exchange, _data: bytes) -> tuple[Model, Read]:
        path = exchange.path + (f"?{exchange.query}" if exchange.query else "")
        headers = _engine_headers(exchange) | {":method": exchange.method}
        model = await self.models.of_body(exchange, exchange.headers.get(TARGET, ""))
        return model, Read(HttpRequest(path, b"", headers), exchange.spec.form())

    async def _uploaded(self, _path: Path, exchange: Exchange, data: bytes) -> tuple[Model, Read]:
        headers = _engine_headers(exchange)
        name = await aside(len(data), model_in_upload, data, headers.get("content-type", ""))
        model = await self.models.of_body(exchange, name or exchange.headers.get(TARGET, ""))
        return model, Read(HttpRequest(exchange.path, data, headers), exchange.spec.form())

    async def _invoked(self, path: Path, exchange: Exchange, data: bytes) -> tuple[Model, Read]:
        """Read LMI's body for the model that the path, a header or the body names.

        OpenAI's bodies, and those for users' own code, go to the worker as they are.
        """
        if path.accept in exchange.headers:
            exchange.headers["accept"] = exchange.headers[path.accept]
        model, name = await self._invoked_model(exchange, data)
        context = model.context_of(name)
        headers = {n: v for n, v in exchange.headers.items() if n not in _NOT_FOR_MODELS}
        check_headers(headers)
        if context.is_custom and not await aside(len(data), changes_adapters, data):
            parsed = pass_on(data, headers)
        else:
            text = _text(data)
            parsed = await aside(len(data), read_http_body, text, INVOCATIONS, headers, context)
        read = _read_of(parsed, exchange)
        return model, read._replace(form=path.wrap(read.form)) if path.wrap else read

    async def _adapters(self, _path: Path, exchange: Exchange, data: bytes) -> tuple[Model, Read]:
        body: dict[str, Any] = dict(parse_qsl(exchange.query))
        if exchange.method in ("POST", "PUT") and data:
            body |= read_object(data)
        if name := exchange.parameters.get("adapter", ""):
            body["name"] = name
        body["requestType"] = {
            "GET": "DESCRIBE_ADAPTER" if name else "LIST_ADAPTERS", "POST": "REGISTER_ADAPTER",
            "PUT": "UPDATE_ADAPTER", "DELETE": "UNREGISTER_ADAPTER",
        }[exchange.method]  # fmt: skip
        model = await self._named(exchange, exchange.parameters.get("model", ""))
        return model, change_of(exchange, body)

    async def _load_adapter(self, _p: Path, exchange: Exchange, data: bytes) -> tuple[Model, Read]:
        body = read_object(data)
        change = load_of(body)
        return await self.models.of_body(exchange, str(body.get("model") or "")), change

    async def unload_adapter(self, _: Path, exchange: Exchange, data: bytes) -> tuple[Model, Read]:
        body = read_object(data)
        name, change = str(body.get("lora_name")), unload_of(body)
        named, owner = str(body.get("model") or ""), self.models.find(name)
        if owner is None and not named and len(self.models.all()) > 1:
            text = f"no model has an adapter called {printable(repr(name))}"
            raise HttpError(HTTPStatus.NOT_FOUND, text)
        return owner or await self.models.of_body(exchange, named), change

    async def _invoked_model(self, exchange: Exchange, data: bytes) -> tuple[Model, str]:
        """Return the model, and its name in a path or a header."""
        if named := exchange.parameters.get("model") or target_of(exchange.headers):
            name = named.removesuffix(".tar.gz").strip("/")
            return await self._named(exchange, name), name
        endpoint = exchange.parameters.get("endpoint", "")
        for name in (endpoint, ""):
            if (model := await self.models.reach(exchange, name)) is not None:
                return model, name
        # A name in the body is read with the rest of it.
        try:
            wanted = read_model(data) or endpoint
        except HttpError as error:
            raise _step_failed(str(error)) from error
        return await self.models.of_body(exchange, wanted), ""

    async def _named(self, exchange: Exchange, name: str) -> Model:
        if (model := await self.models.reach(exchange, name)) is None:
            raise self.models.unknown(name)
        return model


def _engine_headers(exchange: Exchange) -> dict[str, str]:
    given = exchange.headers
    headers = {name: given[name] for name in _ENGINE_HEADERS if name in given}
    if exchange.request_id:
        headers["x-request-id"] = exchange.request_id
    if "content-type" in given:
        headers["content-type"] = given["content-type"]
    check_headers(headers)
    return headers


def _read_of(parsed: ParsedRequest, exchange: Exchange) -> Read:
    work = parsed.work
    if isinstance(work, AdapterChange):
        return change_of(exchange, dict(work.body))
    if not isinstance(work, HttpRequest | tuple):
        raise HttpError(HTTPStatus.NOT_FOUND, "there is nothing to cancel")
    form = form_of(work, parsed.reply)
    if isinstance(work, tuple):
        work = streamed(work, parsed.reply)
    if isinstance(work, HttpRequest) and work.path != INVOCATIONS:
        # OpenAI's body was told by its fields; its client may have named any type.
        headers = {**work.headers, "content-type": "application/json"}
        work = HttpRequest(work.path, work.body, headers)
    return Read(work, form, parsed.tenant, dropped=parsed.dropped)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _step_failed(f"the body is not UTF-8: {error}") from error


def _step_failed(text: str) -> HttpError:
    status = HTTPStatus.FAILED_DEPENDENCY
    return HttpError(status, json.dumps({"code": status, "error": text}))
