"""Triton's model repository, over its own HTTP port: what is there, loaded or not."""

from __future__ import annotations

import re
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import aiohttp
import msgspec

from lmi_backend.errors import HttpError, UnavailableError
from lmi_backend.pool.load_failure import has_failed

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECT_SECONDS: Final = 5
_MEMORY_WORDS: Final = re.compile(
    r"model does not fit on|KV cache does not fit|memory is full|MemoryError"
    r"|out of memory|OUT_OF_MEMORY|Cannot allocate memory",
    re.IGNORECASE,
)
"""Of our own errors (`plan`, `pool.diagnosis`), of Python's and of CUDA's."""


class RepositoryModel(NamedTuple):
    state: str
    """READY, LOADING, UNLOADING, UNAVAILABLE; empty for one that was never loaded."""
    reason: str

    @property
    def is_loaded(self) -> bool:
        return self.state in ("READY", "LOADING")

    @property
    def status(self) -> str:
        """DJLServing's status; empty for a model that it would not list."""
        if has_failed(self.state, self.reason):
            return "FAILED"
        return {"READY": "READY", "LOADING": "PENDING"}.get(self.state, "")


class ModelControl:
    """Loads and unloads models by their names in the repository.

    Args:
        headers: the key of its model repository, if it requires one.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url, self._headers = f"{url}/v2/repository", headers

    async def close(self) -> None:
        await self._session.close()

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        # A load may take long. A Triton that stops waits 5 s for a connection that stays open.
        connector = aiohttp.TCPConnector(force_close=True)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        return aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers)

    async def index(self) -> dict[str, RepositoryModel]:
        """Return the models of the repository by name, in its order.

        Raises:
            LmiError: Triton does not answer, or not to us.
        """
        models: dict[str, RepositoryModel] = {}
        for row in await self._post("/index"):
            model = RepositoryModel(row.get("state", ""), row.get("reason", ""))
            # Of several versions one that is loaded counts.
            if row["name"] not in models or model.is_loaded:
                models[row["name"]] = model
        return models

    async def load(self, name: str) -> None:
        """Load a model; returns when it is ready.

        Raises:
            LmiError: as for `index`; HttpError 507 if it has no memory, 500 if it fails otherwise.
        """
        try:
            await self._post(f"/models/{quote(name, safe='')}/load")
        except HttpError as error:
            # What follows is where in our code.
            text = str(error).partition("\n\nAt:")[0].strip()
            full = HTTPStatus.INSUFFICIENT_STORAGE
            raise HttpError(full if _MEMORY_WORDS.search(text) else error.status, text) from None

    async def unload(self, name: str) -> None:
        """Have a model unloaded, whose requests may still run; raises like `index`."""
        await self._post(f"/models/{quote(name, safe='')}/unload")

    async def _post(self, path: str) -> Any:
        try:
            async with self._session.post(self._url + path, data=b"{}") as response:
                data = await response.read()
        except aiohttp.ClientError as error:
            raise UnavailableError("Triton's HTTP port does not answer") from error
        if response.status == HTTPStatus.FORBIDDEN:
            text = "Triton's model repository needs a key that this front end does not have; "
            text += "`lmi-backend serve` gives it; next to other servers --control-key FILE does"
            raise HttpError(HTTPStatus.NOT_IMPLEMENTED, text)
        body: Any = msgspec.json.decode(data) if data else {}
        if response.status != HTTPStatus.OK:
            text = f"Triton says: {body.get('error', body)}"
            raise HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, text)
        return body
