"""`/openapi.json`: the paths of all clients, with the bodies as the engine's server has them."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend import __version__
from lmi_backend.clients.registry import CLIENTS
from lmi_backend.clients.spec import ANYBODY, DESCRIPTION, PROBE, RELAY, UPLOAD
from lmi_backend.errors import LmiError
from lmi_backend.generation import Chunk, HttpChunk, HttpRequest
from lmi_backend.json_text import UNREADABLE

if TYPE_CHECKING:
    from lmi_backend.clients.spec import Path
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models

_SECONDS: Final = 30.0
"""Time an engine has to describe its paths; vLLM takes a second or two, once."""
_REQUEST: Final = HttpRequest(DESCRIPTION, b"", {":method": "GET"})
_NAME: Final = re.compile(r"{(\w+)(?::path)?}")
_JSON: Final = {"application/json": {"schema": {"type": "object"}}}
_KEY: Final = {"type": "http", "scheme": "bearer"}


async def show(models: Models, exchange: Exchange) -> None:
    engine = await _of_engine(models)
    paths: dict[str, dict[str, Any]] = {}
    for client in CLIENTS.values():
        for path in client.paths:
            is_relayed = path.action in (RELAY, UPLOAD)
            relayed = engine.get("paths", {}).get(path.template, {}) if is_relayed else {}
            methods = paths.setdefault(_NAME.sub(r"{\1}", path.template), {})
            for method in path.methods.lower().split():
                operation = relayed.get(method) or _operation(path, method)
                needs_key = path.who not in (PROBE, ANYBODY)
                key = [{f"{path.who}-key": list[str]()}] if needs_key else []
                more = {"tags": [client.title], "security": key}
                methods.setdefault(method, operation | more)
    schemes = {"client-key": _KEY, "operator-key": _KEY}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "lmi-backend", "version": __version__},
        "paths": paths,
        "components": engine.get("components", {}) | {"securitySchemes": schemes},
    }
    await exchange.respond_json(document, headers={"cache-control": "no-store"})


async def _of_engine(models: Models) -> dict[str, Any]:
    """Return the document of the first engine that has one, or an empty one."""
    for model in models.all():
        # A user's handler would take the request for one of its own.
        if not model.context.is_custom:
            document = await _read(model)
            if "paths" in document:
                return document
    return {}


async def _read(model: Model) -> dict[str, Any]:
    """Return what a model's engine answers; empty if it has no document."""
    try:
        data = await asyncio.wait_for(_answer(model), _SECONDS)
        return msgspec.json.decode(data, type=dict[str, Any])
    except (LmiError, asyncio.TimeoutError, *UNREADABLE):
        return {}


async def _answer(model: Model) -> bytes:
    answer, chunks = model.connection.submit(_REQUEST, ""), list[Chunk]()
    try:
        while not (chunks and chunks[-1].is_last):
            chunks += await answer.read()
        answer.is_over = True
    finally:
        answer.close()
    return b"".join(each.data for each in chunks if isinstance(each, HttpChunk))


def _operation(path: Path, method: str) -> dict[str, Any]:
    """Return what is known of a path without its engine."""
    operation: dict[str, Any] = {"responses": {"200": {"description": "OK", "content": _JSON}}}
    if method in ("post", "put"):
        operation["requestBody"] = {"content": _JSON}
    if names := _NAME.findall(path.template):
        required = {"in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [{"name": name} | required for name in names]
    return operation
