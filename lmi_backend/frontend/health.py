"""Whether the server is there and takes requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from lmi_backend import __version__
from lmi_backend.errors import LmiError
from lmi_backend.frontend.held import AWAY

if TYPE_CHECKING:
    from lmi_backend.frontend.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models

_ASK_SECONDS: Final = 2.0
_JSON: Final = {"content-type": "application/json"}
STOPPING: Final = "the server is stopping"


class Health:
    """Answers probes; ready when there is a model and each takes requests."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self.is_stopping = False
        """Whether no more requests are taken."""

    async def ping(self, exchange: Exchange) -> None:
        """Answer SageMaker's and Kubernetes' probes: 200 or 503."""
        troubles = await self.troubles()
        body = {"status": "Unhealthy", "trouble": troubles} if troubles else {"status": "Healthy"}
        headers = _JSON | ({"retry-after": "1"} if troubles else {})
        await exchange.respond(503 if troubles else 200, msgspec.json.encode(body), headers)

    async def live(self, exchange: Exchange) -> None:
        """Say that this process answers."""
        await exchange.respond(200, b"", {})

    async def version(self, exchange: Exchange) -> None:
        """Say which engine answers."""
        said = [model.info for model in self._models.all()]
        body = {"version": said[0].version if said else __version__, "lmi_backend": __version__}
        await exchange.respond(200, msgspec.json.encode(body), _JSON)

    async def troubles(self) -> list[str]:
        """Return why requests would not be taken, a line a model; none where all is well."""
        if self.is_stopping:
            return [STOPPING]
        models = self._models.all()
        awaited = self._models.awaited
        missing = [f"{name}: {AWAY}" for name in awaited]
        missing += [f"loading {name}" for name in self._models.loading if name not in awaited]
        if not models:
            return missing or [self._models.why_none()]
        said = await asyncio.gather(*(_trouble(model) for model in models))
        return missing + [text for text in said if text]


async def _trouble(model: Model) -> str:
    try:
        health = await asyncio.wait_for(model.connection.health(), _ASK_SECONDS)
    except asyncio.TimeoutError:
        return f"{model.name}: its stub does not answer"
    except LmiError as error:
        return f"{model.name}: {error}"
    return "" if health.is_ready else f"{model.name}: {health.trouble}"
