"""Ask Triton over HTTP: perf_analyzer does not read its event streams."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmark.measured import Answer, Measured

_SECONDS = 600


@dataclass(frozen=True)
class SseClient:
    """Posts bodies to `generate_stream` and notes when each event comes."""

    url: str
    prompt: str

    def run(self, tokens: int, concurrency: int, requests: int) -> Measured:
        """See `Asks`."""
        parameters = {"max_new_tokens": tokens, "ignore_eos_token": True, "temperature": 0}
        body = {"inputs": self.prompt, "parameters": parameters, "stream": True}
        return asyncio.run(self._run(body, concurrency, requests))

    async def _run(self, body: dict[str, Any], concurrency: int, requests: int) -> Measured:
        left = iter(range(requests))
        answers: list[Answer] = []
        connector = aiohttp.TCPConnector(limit=concurrency)
        timeout = aiohttp.ClientTimeout(total=_SECONDS)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

            async def ask_on() -> None:
                for _ in left:
                    answers.append(await self._ask(session, body))

            await asyncio.gather(*(ask_on() for _ in range(concurrency)))
        return Measured.of(answers)

    async def _ask(self, session: aiohttp.ClientSession, body: dict[str, Any]) -> Answer:
        asked = time.monotonic()
        times: list[float] = []
        async with session.post(self.url, json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data:"):
                    times.append(time.monotonic())
        return Answer(asked, times)
