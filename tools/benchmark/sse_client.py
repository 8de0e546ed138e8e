"""Ask over HTTP and note each event: perf_analyzer reads no streams of Triton's HTTP port."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmark.measured import Answer, Measured

_SECONDS = 600


@dataclass(frozen=True)
class SseClient:
    """Posts bodies and notes when each event comes."""

    url: str
    body: Callable[[int], dict[str, Any]]
    """Of a request for an answer of so many tokens."""

    def run(self, tokens: int, concurrency: int, requests: int) -> Measured:
        """See `Asks`."""
        return asyncio.run(self._run(self.body(tokens), concurrency, requests))

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
            async for part in response.content.iter_any():
                now, events = time.monotonic(), part.count(b"data: {")
                times += [now] * events
        return Answer(asked, times)


def chat_body(prompt: str, model: str) -> Callable[[int], dict[str, Any]]:
    """Return what makes OpenAI's chats."""

    def body(tokens: int) -> dict[str, Any]:
        return {
            "model": model,
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
        }

    return body


def lmi_body(prompt: str) -> Callable[[int], dict[str, Any]]:
    """Return what makes LMI's bodies."""

    def body(tokens: int) -> dict[str, Any]:
        parameters = {"max_new_tokens": tokens, "ignore_eos_token": True, "temperature": 0}
        return {"inputs": prompt, "parameters": parameters, "stream": True}

    return body
