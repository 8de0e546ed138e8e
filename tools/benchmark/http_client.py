"""Ask over HTTP and note each event of the streams: one client for all HTTP targets alike.

It reads what a stream's events begin with and nothing else, so that it stays out of the picture;
the report shows its CPU. perf_analyzer's OpenAI mode says 137 ms to the first token where there
are 5, and it reads no streams of Triton's HTTP port.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from benchmark.measured import Answer, Measured

Body = Callable[[int], dict[str, Any]]
"""Makes the body of a request for an answer of so many tokens."""

SENT: Final = b"data: {"
"""How a server-sent event begins."""
LINE: Final = b'{"token"'
"""How a line of LMI's streams begins."""
EMBEDDING: Final = b'"embedding":['
"""How an embedding begins in an answer."""
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_NOTHING: Final = b"0\r\n\r\n"
"""A response in chunks, of which there are none."""
_END: Final = b"\r\n" + _NOTHING
_GOOD: Final = b"HTTP/1.1 200"
_SECONDS: Final = 600
_HTTP: Final = 80


@dataclass(frozen=True)
class HttpClient:
    """Posts bodies on as many connections as requests run at once."""

    url: str
    body: Body
    event: bytes = SENT
    """How an event of a stream begins."""

    def run(self, tokens: int, concurrency: int, requests: int) -> Measured:
        return Measured.of(self.answers(tokens, concurrency, requests))

    def answers(self, tokens: int, concurrency: int, requests: int) -> list[Answer]:
        """Return the times of each answer, as `run` asks for them."""
        return uvloop.run(self._run(self.body(tokens), concurrency, requests))

    async def _run(self, body: dict[str, Any], concurrency: int, requests: int) -> list[Answer]:
        loop, parts = asyncio.get_running_loop(), urlsplit(self.url)
        request, left = _request(self.url, body), iter(range(requests))
        count = min(concurrency, requests)
        clients = [
            StreamConnection(request, self.event, left, loop.create_future()) for _ in range(count)
        ]
        address = parts.hostname or "", parts.port or _HTTP
        for client in clients:
            await loop.create_connection(partial(_same, client), *address)
        # Asked together: who has to wait for others' connections would not be one of so many.
        for client in clients:
            client.ask()
        await asyncio.wait_for(asyncio.gather(*(client.done for client in clients)), _SECONDS)
        return [answer for client in clients for answer in client.answers]


class StreamConnection(asyncio.Protocol):
    """Asks again as soon as an answer is whole."""

    def __init__(
        self, request: bytes, event: bytes, left: Iterator[int], done: asyncio.Future[None]
    ) -> None:
        self._request, self._event, self._left, self.done = request, event, left, done
        self.answers: list[Answer] = []
        self._tail, self._has_begun = b"", False
        self._length: int | None = None
        """Bytes of the body that are still to come; None where it comes in chunks."""
        self._times: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def ask(self) -> None:
        if next(self._left, None) is None:
            self._transport.close()
            self.done.set_result(None)
            return
        self._asked, self._times, self._tail = time.monotonic(), [], b""
        self._has_begun = False
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now, known = time.monotonic(), self._tail + data
        if not self._has_begun:
            head, end, data = known.partition(_HEAD_END)
            if not end:
                self._tail = known
                return
            if not head.startswith(_GOOD):
                self._fail(known[:500])
                return
            self._has_begun, known = True, data
            length = _LENGTH.search(head)
            self._length = int(length[1]) if length else None
        self._times += [now] * (known.count(self._event) - self._tail.count(self._event))
        # An event's beginning may be cut, and the end of the response too.
        self._tail = known[-len(self._event) + 1 :]
        if self._length is not None:
            self._length -= len(data)
            is_over = self._length <= 0
        else:
            is_over = known.endswith(_END) or known == _NOTHING
        if not is_over:
            return
        if not self._times:
            self._fail(b"an answer without events: " + known[-500:])
            return
        self.answers.append(Answer(self._asked, self._times))
        self.ask()

    def _fail(self, why: bytes) -> None:
        self.done.set_exception(RuntimeError(why.decode(errors="replace")))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))


def _same(client: StreamConnection) -> StreamConnection:
    return client


def _request(url: str, body: dict[str, Any]) -> bytes:
    parts, data = urlsplit(url), json.dumps(body).encode()
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(data)}\r\n"
        "Content-Type: application/json\r\nAccept: text/event-stream\r\n\r\n"
    )
    return head.encode() + data


def chat_body(prompt: str, model: str, more: Mapping[str, Any] = MappingProxyType({})) -> Body:
    """Return what makes OpenAI's chats; `more` is what they ask besides."""
    asked = {"messages": [{"role": "user", "content": prompt}]}
    return lambda tokens: {**asked, **_openai(model, tokens), **more}


def completion_body(prompt: str, model: str) -> Body:
    return lambda tokens: {"prompt": prompt} | _openai(model, tokens)


def _openai(model: str, tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "stream": True,
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
    }


def embedding_body(model: str) -> Body:
    """Return what makes requests for an embedding; the tokens are those of the input."""
    return lambda tokens: {"model": model, "input": [5] * tokens}


def lmi_body(prompt: str) -> Body:
    def body(tokens: int) -> dict[str, Any]:
        parameters = {"max_new_tokens": tokens, "ignore_eos_token": True, "temperature": 0}
        return {"inputs": prompt, "parameters": parameters, "stream": True}

    return body


def triton_body(prompt: str) -> Body:
    """Return what makes bodies of Triton's `generate_stream`, in its vLLM backend's words."""

    def body(tokens: int) -> dict[str, Any]:
        sampling = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
        return {
            "text_input": prompt,
            "stream": True,
            "exclude_input_in_output": True,
            "sampling_parameters": json.dumps(sampling),
        }

    return body
