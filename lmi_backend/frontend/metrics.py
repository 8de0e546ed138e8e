"""Metrics on the clients' port: Triton's, ours among them, and those that fleets route by.

Gateways' endpoint pickers take one series of a name and never sum, so there is one of each, over
all models and workers. They scrape twenty times a second: what costs something is kept for a while.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from lmi_backend.errors import LmiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models

_TRITON_SECONDS: Final = 1.0
"""Between two looks at Triton's metrics; the stubs publish theirs once a second."""
_MODEL_SECONDS: Final = 0.04
"""Between two questions to the models."""
_ASK_SECONDS: Final = 1.0
_HEADERS: Final = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
_FAMILIES: Final = (
    ("vllm:num_requests_running", "Requests that engines generate for"),
    ("vllm:num_requests_waiting", "Requests that wait, for a worker or in an engine"),
    ("vllm:kv_cache_usage_perc", "Share of KV-cache blocks in use of the fullest worker, 0 to 1"),
)


class Metrics:
    """Answers `GET /metrics`.

    Args:
        url: of Triton's own metrics.
    """

    def __init__(self, models: Models, url: str) -> None:
        self._models, self._url = models, url
        self._triton, self._triton_at = "", -_TRITON_SECONDS
        self._fleet, self._fleet_at = "", -_MODEL_SECONDS
        self._renewing = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    async def show(self, exchange: Exchange) -> None:
        """Answer with all of them, in Prometheus's text form."""
        async with self._renewing:
            now = time.monotonic()
            if now - self._triton_at >= _TRITON_SECONDS:
                self._triton, self._triton_at = await self._read_triton(), now
            if now - self._fleet_at >= _MODEL_SECONDS:
                self._fleet, self._fleet_at = await self._ask_models(), now
        await exchange.respond(200, (self._triton + self._fleet).encode(), _HEADERS)

    async def close(self) -> None:
        """Close the connection to Triton."""
        if self._session is not None:
            await self._session.close()

    async def _read_triton(self) -> str:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_ASK_SECONDS))
        try:
            async with self._session.get(self._url) as response:
                return await response.text() if response.ok else ""
        except (aiohttp.ClientError, asyncio.TimeoutError):
            # The server starts, or is started again.
            return ""

    async def _ask_models(self) -> str:
        states = await asyncio.gather(*map(_state, self._models.all()))
        return "".join(f"{line}\n" for line in _lines(states))


async def _state(model: Model) -> dict[str, Any]:
    try:
        return await asyncio.wait_for(model.connection.state(), _ASK_SECONDS)
    except (LmiError, asyncio.TimeoutError):
        return {}


def _lines(states: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of some models' states (`endpoint/state.py`)."""
    known = [state for state in states if state]
    workers = [worker["stats"] for state in known for worker in state["workers"]]
    waiting = sum(state["stats"]["waiting"] for state in known)
    values = (
        sum(worker["running"] for worker in workers),
        waiting + sum(worker["waiting"] for worker in workers),
        max((worker["kv_cache_usage"] for worker in workers), default=0.0),
    )
    for (name, meaning), value in zip(_FAMILIES, values, strict=True):
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} gauge"
        yield f"{name} {value}"
