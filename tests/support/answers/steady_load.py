"""A steady load of streams through a router, and how each of them ended at its client."""

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.support.answers.streams import Stream
from tests.support.run.waiting import wait_for

STREAMS = 24
TOKENS = 40
_PAUSE = 0.05


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
        self._address, self._model = url.removeprefix("http://"), model
        self._headers, self.clients = headers, streams
        self._name = secrets.token_hex(4)
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(streams)]
        self.all: list[Asked] = []

    def __enter__(self) -> "SteadyLoad":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

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

    def _run(self, number: int) -> None:
        count = 0
        while not self._is_over.wait(_PAUSE):
            stream = Asked(id=f"{self._name}.{number}.{count}")
            headers = {"content-type": "application/json", "x-request-id": stream.id}
            headers |= self._headers(number)
            body = {"model": self._model, "prompt": " word", "max_tokens": TOKENS, "stream": True}
            try:
                stream.ask(self._address, "/v1/completions", json.dumps(body).encode(), headers)
            except ValueError as error:
                stream.end("error", repr(error))
            if (stream.endings, stream.tokens) != (["whole"], TOKENS):
                why = stream.error or f"ended early ({stream.tokens} tokens)"
                stream.failure = f"{stream.endings}: {why}"[:120]
            self.all.append(stream)
            count += 1
