"""DJLServing's management API, as SageMaker's multi-model endpoints use it too.

A model is one of Triton's repository, by its name there. Its serving.properties decide what it is,
its workers and its limits. So a key for this port loads only code and folders that the operator of
the machine has put there.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from lmi_backend.errors import HttpError, LmiError, UnknownModelError
from lmi_backend.frontend.http.bodies import read_object
from lmi_backend.frontend.model_control import ModelControl, RepositoryModel
from lmi_backend.printable import listed, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Models

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.05
_LOOKS_FOR_MODEL: Final = 40
"""In which the endpoint of a model that is ready is found."""
_UNLOAD_SECONDS: Final = 60.0
_PAGE: Final = 100
_REGISTER: Final = ("url", "model_name", "synchronous")


class Management:
    """Answers `/models` and `/models/NAME`."""

    def __init__(self, models: Models, control: ModelControl) -> None:
        self._models, self._control = models, control
        self._loading: dict[str, asyncio.Task[None]] = {}

    async def list(self, exchange: Exchange) -> None:
        parameters = _parameters(dict(parse_qsl(exchange.query)), ("limit", "next_page_token"))
        first = _number(parameters, "next_page_token", 0)
        end = first + max(1, _number(parameters, "limit", _PAGE))
        index = await self._control.index()
        rows = [
            {"modelName": name, "modelUrl": name, "status": model.status}
            for name, model in sorted(index.items())
            if model.status
        ]
        body: dict[str, Any] = {"models": rows[first:end]}
        if end < len(rows):
            body["nextPageToken"] = str(end)
        await exchange.respond_json(body)

    async def describe(self, exchange: Exchange) -> None:
        name, model = await self._loaded(exchange)
        state = await self._state(name)
        health = state.get("health", {"is_ready": model.state == "READY"})
        workers = [
            {"id": number, "status": "READY" if worker["is_ready"] else "FAILED"}
            for number, worker in enumerate(state.get("workers", ()), start=1)
            if worker["is_wanted"]
        ]
        described: dict[str, Any] = {
            "modelName": name,
            "modelUrl": name,
            "status": "Healthy" if health["is_ready"] else "Unhealthy",
        }
        if state:
            most = len(state["workers"])
            least = state["plan"]["min_workers"] or most
            group = {"minWorkers": least, "maxWorkers": most, "workers": workers}
            described["requestInQueue"] = state["stats"]["waiting"]
            described["workerGroups"] = [group]
        await exchange.respond_json([{"workflowName": name, "models": [described]}])

    async def register(self, exchange: Exchange) -> None:
        parameters = dict(parse_qsl(exchange.query))
        if data := await exchange.text():
            parameters |= read_object(data)
        name = _name_of(_parameters(parameters, _REGISTER))
        is_synchronous = _flag(parameters, "synchronous")
        index = await self._control.index()
        if name not in index:
            accepted = f"the models of the server's repository: {listed(index)}"
            text = f"model_name={printable(name)} is unknown; accepted: {accepted}"
            raise HttpError(HTTPStatus.NOT_FOUND, text)
        if index[name].is_loaded or name in self._loading:
            raise HttpError(HTTPStatus.CONFLICT, f"model {name} is registered already")
        loading = asyncio.create_task(self._load(name))
        self._loading[name] = loading
        loading.add_done_callback(partial(self._forget, name))
        if not is_synchronous:
            status = {"status": f'Model "{name}" registration scheduled.'}
            await exchange.respond_json(status, HTTPStatus.ACCEPTED)
            return
        # It continues when its client leaves.
        await asyncio.shield(loading)
        await exchange.respond_json({"status": f'Model "{name}" registered.'})

    async def unregister(self, exchange: Exchange) -> None:
        name, model = await self._loaded(exchange)
        if model.state == "READY" and (loading := self._loading.get(name)):
            await asyncio.wait({loading})
        await self._control.unload(name)
        end = asyncio.get_running_loop().time() + _UNLOAD_SECONDS
        while (left := (await self._control.index()).get(name)) and left.state == "UNLOADING":
            if asyncio.get_running_loop().time() > end:
                text = f'Model "{name}" is unregistered when its requests have finished'
                await exchange.respond_json({"status": text}, HTTPStatus.ACCEPTED)
                return
            await asyncio.sleep(_LOOK_SECONDS)
        await exchange.respond_json({"status": f'Model or workflow "{name}" unregistered'})

    async def _load(self, name: str) -> None:
        try:
            await self._control.load(name)
        except LmiError as error:
            _log.error("model %s is not loaded: %s", name, error)
            raise
        # An alias model has none, nor has one of another backend.
        for _ in range(_LOOKS_FOR_MODEL):
            # Also for Triton, which may die of an unload while the load's thread still returns.
            await asyncio.sleep(_LOOK_SECONDS)
            if self._models.find(name) is not None:
                return

    def _forget(self, name: str, loading: asyncio.Task[None]) -> None:
        del self._loading[name]
        # It is in the log, also where nobody waited.
        if not loading.cancelled():
            loading.exception()

    async def _loaded(self, exchange: Exchange) -> tuple[str, RepositoryModel]:
        name = exchange.parameters["model"]
        model = (await self._control.index()).get(name)
        if model is None or not model.is_loaded:
            raise UnknownModelError(name)
        return name, model

    async def _state(self, name: str) -> dict[str, Any]:
        """Return the state of an LMI model (`endpoint/state.py`); nothing for other models."""
        model = self._models.find(name)
        if model is None or model.name != name:
            return {}
        return await model.connection.requests.state()


def _name_of(parameters: Mapping[str, str]) -> str:
    name, url = parameters.get("model_name") or "", parameters.get("url") or ""
    if not (name or url):
        raise _wrong("model_name is missing; accepted: a model of the repository")
    if url not in ("", name) and (name or "/" in url):
        text = f"url={printable(url)}: nothing is fetched or read from elsewhere; accepted: no url,"
        raise _wrong(f"{text} or as url the name of a model of the server's repository")
    return name or url


def _parameters(parameters: dict[str, Any], accepted: tuple[str, ...]) -> dict[str, str]:
    for name, value in parameters.items():
        if name not in accepted:
            text = f"{printable(name)} is not taken; accepted: {listed(accepted)}"
            raise _wrong(f"{text}. serving.properties says all else of a model")
        if not (isinstance(value, str) or (name == "synchronous" and isinstance(value, bool))):
            raise _wrong(f"{name} is not a text")
    return parameters


def _number(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise _wrong(f"{name}={printable(text)}; accepted: a whole number")
    return int(text)


def _flag(parameters: Mapping[str, Any], name: str) -> bool:
    text = str(parameters.get(name, "true")).lower()
    if text not in ("true", "false"):
        raise _wrong(f"{name}={printable(text)}; accepted: true, false")
    return text == "true"


def _wrong(text: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, text)
