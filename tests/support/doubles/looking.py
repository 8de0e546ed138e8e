"""Models that a front end looks for, and an exchange that notes its answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from lmi_backend.frontend.models import Models


@contextlib.asynccontextmanager
async def looking(models: Models) -> AsyncIterator[Models]:
    """Yield models that look for endpoints meanwhile."""
    task = asyncio.create_task(models.run())
    try:
        yield models
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class NotedAnswer:
    """An exchange, with its query and the answer."""

    def __init__(self, query: str = "") -> None:
        self.query = query
        self.parameters: dict[str, str] = {}
        self.answer: Any = None
        self.headers: dict[str, str] = {}

    async def respond_json(self, body: object, *, headers: dict[str, str] | None = None) -> None:
        self.answer, self.headers = msgspec.json.decode(msgspec.json.encode(body)), headers or {}

    async def respond(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        assert status == 200
        self.answer, self.headers = data.decode(), headers
