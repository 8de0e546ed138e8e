"""Whether the server is there and takes requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lmi_backend import __version__
from lmi_backend.errors import LmiError
from lmi_backend.frontend.outages import AWAY

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lmi_backend.endpoint.loading import Loading
    from lmi_backend.frontend.http.exchange import Exchange
    from lmi_backend.frontend.models import Model, Models

STOPPING: Final = "the server is stopping"
CLOSED: Final = "the models are loaded, and Triton's own ports are not open yet"


class HealthChecks:
    """Answers probes; ready when there is a model, and each that is loaded takes requests.

    Args:
        required: names of those without which it is not ready, where `serve` tries again what
            could not be loaded; elsewhere it is not ready without each model.
    """

    def __init__(self, models: Models, required: Collection[str] = ()) -> None:
        self._models, self._required = models, required
        self.is_stopping = False
        """Whether new requests are refused."""

    async def ping(self, exchange: Exchange) -> None:
        """Answer SageMaker's and Kubernetes' probes: 200 or 503."""
        problems = await self.problems()
        body: dict[str, object] = {"status": "Unhealthy" if problems else "Healthy"}
        if problems:
            # 0.2.0 calls them so.
            body["problems"] = body["trouble"] = problems
        if missing := self._models.starting.failed:
            body["missing"] = missing
        headers = {"retry-after": "1"} if problems else {}
        await exchange.respond_json(body, 503 if problems else 200, headers)

    async def live(self, exchange: Exchange) -> None:
        await exchange.respond(200, b"", {})

    async def version(self, exchange: Exchange) -> None:
        infos = [model.info for model in self._models.all()]
        body = {"version": infos[0].version if infos else __version__, "lmi_backend": __version__}
        await exchange.respond_json(body)

    async def problems(self) -> list[str]:
        """Return why requests would be refused, a line for each model; none if all is well."""
        if self.is_stopping:
            return [STOPPING]
        models = self._models.all()
        awaited, starting = self._models.outages.awaited, self._models.starting
        missing = [f"{name}: {AWAY}" for name in awaited]
        failed = starting.failed
        needed = self._required if starting.reloads else failed
        missing += [f"{name}: {failed[name]}" for name in needed if name in failed]
        progress = self._models.progress()
        loading = [name for name in starting.loading if name not in awaited]
        missing += [_loading(name, progress) for name in loading]
        if not models:
            return missing or [self._models.why_none()]
        texts = await asyncio.gather(*(_problem(model) for model in models))
        reasons = missing + [text for text in texts if text]
        return reasons or ([] if starting.is_open else [CLOSED])


def _loading(name: str, progress: Mapping[str, Loading]) -> str:
    brief = progress[name].brief if name in progress else ""
    return f"loading {name}: {brief}" if brief else f"loading {name}"


async def _problem(model: Model) -> str:
    try:
        health = await model.connection.requests.health()
    except LmiError as error:
        return f"{model.name}: {error}"
    return "" if health.is_ready else f"{model.name}: {health.problem}"
