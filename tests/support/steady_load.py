"""A steady load of streams through a router, and how each of them ended at its client."""

import asyncio
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from tests.support.streams import Stream
from tests.support.waiting import wait_for

STREAMS = 24
TOKENS = 40
_PAUSE = 0.05
_TIMEOUT = 60.0


@dataclass
class Asked(Stream):
    id: str = ""
    began: float = field(default_factory=time.monotonic)
    failure: str = ""
    """Why it is not whole; empty if it is."""


class SteadyLoad:
    """Clients that ask one stream after the other until the block ends.

    Args:
        url: of the router.
        model: by which name clients ask.
        headers: what a client adds, by its number.
        streams: clients.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        headers: Callable[[int], Mapping[str, str]] = lambda _: {},
        streams: int = STREAMS,
    ) -> None:
        self._url, self._model, self._headers, self.clients = url, model, headers, streams
        self._name = secrets.token_hex(4)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.all: list[Asked] = []

    def __enter__(self) -> "SteadyLoad":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def go_on(self) -> None:
        """Wait until as many more streams have ended as each client asks for in four rounds."""
        count = len(self.all) + 4 * self.clients
        wait_for(lambda: len(self.all) >= count)

    @property
    def whole(self) -> int:
        """Streams that came to their end, with every token."""
        return sum(not each.failure for each in self.all)

    @property
    def failed(self) -> list[Asked]:
        return [each for each in self.all if each.failure]

    @property
    def failures(self) -> Counter[str]:
        return Counter(each.failure for each in self.failed)

    def failed_after(self, moment: float) -> list[Asked]:
        return [each for each in self.failed if each.began > moment]

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            await asyncio.gather(*(self._client(session, each) for each in range(self.clients)))

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        count = 0
        while not self._is_over.is_set():
            stream = Asked(id=f"{self._name}.{number}.{count}")
            try:
                await self._ask(session, number, stream)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                stream.failure = f"{type(error).__name__}: {error}"[:120]
            stream.ended_at = time.monotonic()
            self.all.append(stream)
            count += 1
            await asyncio.sleep(_PAUSE)

    async def _ask(self, session: aiohttp.ClientSession, number: int, stream: Asked) -> None:
        body = {"model": self._model, "prompt": " word", "max_tokens": TOKENS, "stream": True}
        headers = {"x-request-id": stream.id, **self._headers(number)}
        url = f"{self._url}/v1/completions"
        async with session.post(url, json=body, headers=headers) as response:
            if response.status != 200:
                text = await response.text()
                stream.failure = f"status {response.status}: {text}"[:120]
                return
            async for line in response.content:
                stream.take(line)
            if stream.error:
                stream.failure = f"error: {stream.error}"[:120]
            elif (stream.endings, stream.tokens) != (["whole"], TOKENS):
                stream.failure = f"ended early ({stream.tokens} tokens)"
