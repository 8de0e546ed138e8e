"""One HTTP request and its response, over ASGI."""

from __future__ import annotations

import asyncio
import re
import time
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.openai import SPEC as OPENAI
from lmi_backend.clients.spec import EVENTS, JSON
from lmi_backend.errors import HTTP_ERROR, EngineError, HttpError
from lmi_backend.frontend.http.bodies import (
    ACCEPTED,
    Arrival,
    Bodies,
    ClientGoneError,
    aside,
    encoding_of,
    too_large,
    utf8_of,
)
from lmi_backend.frontend.http.protocol import CLIENT
from lmi_backend.printable import printable
from lmi_backend.shares import FREE_BYTES

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


def line_of(name: str, value: str) -> tuple[bytes, bytes]:
    """Return a header as ASGI has it. Raises EngineError: HTTP does not allow it."""
    if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
        text = f"the answer has the header {printable(name)!r} with {printable(value)!r}"
        raise EngineError(f"{text}: HTTP does not allow it")
    return name.encode(), value.encode("latin-1", "replace")


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from lmi_backend.clients.spec import ClientSpec
    from lmi_backend.frontend.http.api_keys import ApiKey
    from lmi_backend.frontend.http.protocol import Client

    Scope = Mapping[str, Any]
    Receive = Callable[[], Awaitable[Mapping[str, Any]]]
    Send = Callable[[Mapping[str, Any]], Awaitable[None]]

PING_SECONDS: Final = 15.0
"""Of silence on an event stream, after which a comment is sent: proxies close idle ones."""
PING: Final = b": ping\n\n"
_STREAM_HEADERS: Final = {b"cache-control": b"no-cache", b"x-accel-buffering": b"no"}
"""Of a response without a length, so that proxies pass each part on at once."""
_ENCODINGS: Final = ("content-encoding", "transfer-encoding")
"""Headers that name a body's encodings, the one that was applied first first."""
_BINARY_TYPES: Final = ("image/", "audio/", "video/")
"""Types of bodies that users' code gets as they are."""
_EMPTY: Final = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class Exchange:
    def __init__(
        self, scope: Scope, receive: Receive, send: Send, bodies: Bodies | None = None
    ) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._has_head_only = scope["method"] == "HEAD"
        self.method: str = "GET" if self._has_head_only else scope["method"]
        """How it is answered: `HEAD` as `GET`, and the server leaves the body out."""
        self.path: str = scope["path"]
        self.began = time.monotonic()
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.parameters: Mapping[str, str] = scope.get("path_params", {})
        self.spec: ClientSpec = OPENAI
        """What its client is."""
        self.status = 0
        """Of the response; 0 before it has begun."""
        self.is_event_stream = False
        """Whether the response is a stream of events."""
        self.error = ""
        """Name of the error with which the answer failed; empty if it did not."""
        self.request_id = ""
        self.tenant = ""
        """On whose behalf, as the key says; empty where there are no keys."""
        self.model = ""
        """Name of the model that the request names; empty if it names none, or none that is
        there."""
        self.key_digest = ""
        """Hash of the client's key; empty where there are no keys."""
        self.key: ApiKey | None = None
        """The key that counts the request as running, and is to be told of its end."""
        self.is_operator = False
        """Whether the client may manage what is served."""
        self.has_token_limit = False
        """Whether the client's key has a limit of tokens."""
        self.num_prompt_tokens = self.num_tokens = 0
        """Of the answer so far, where the engine counts them."""
        self.extra_headers: list[tuple[bytes, bytes]] = []
        self.ping_text = PING
        """Comment that is sent on a silent event stream."""
        self._ends_at_close = False
        """Whether the end of the connection is that of the response."""
        self._is_over = False
        self._written_at = 0.0
        self._ping_timer: asyncio.TimerHandle | None = None
        self.client: Client = scope[CLIENT]
        self._bodies = bodies or Bodies()
        self._arrival: Arrival | None = None
        """Of the body, while that is held and counts."""

    @property
    def query(self) -> str:
        text: bytes = self._scope.get("query_string", b"")
        return text.decode("latin-1")

    @property
    def address(self) -> str:
        """The client's address; empty if it is not known."""
        host, *_ = self._scope.get("client") or ("",)
        return str(host)

    @property
    def raw_path(self) -> str:
        """The path as it was written, before %-escapes were read."""
        raw: bytes = self._scope.get("raw_path") or self.path.encode()
        return raw.decode("latin-1").partition("?")[0]

    async def body(self) -> bytes:
        """Read the request's body, as large and as slow as `Bodies` allow.

        Raises:
            HttpError: it is too large (413), too slow (408), in an unknown encoding (415) or wrong
                in a known one (400), or those of its key together are too large (503).
            ClientGoneError: the client left in the middle.
        """
        length = int(self.headers.get("content-length") or 0)
        if length > self._bodies.largest:
            raise too_large(self._bodies.largest)
        self._body_ended()
        is_plain = self.headers.keys().isdisjoint(_ENCODINGS)
        if is_plain and 0 < length <= FREE_BYTES and self.client.has_sent_all:
            # It is here, and does not count.
            if (message := await self._receive())["type"] == "http.disconnect":
                raise ClientGoneError
            body: bytes = message["body"]
            return body
        try:
            encoding = encoding_of(self.headers)
            data, self._arrival = await self._bodies.read(self._receive, encoding, self.tenant)
        except HttpError as error:
            if error.status == HTTPStatus.REQUEST_TIMEOUT:
                self.extra_headers.append((b"connection", b"close"))
            elif error.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
                accepted = ", ".join(ACCEPTED).encode()
                self.extra_headers.append((b"accept-encoding", accepted))
            raise
        if encoding:
            self._becomes(data)
        return data

    def _becomes(self, body: bytes) -> None:
        """Have the headers, which users' code may read, describe the body as it now is."""
        self.headers.pop("content-encoding", None)
        if "content-length" in self.headers:
            self.headers["content-length"] = str(len(body))

    async def text(self) -> bytes:
        """Read the request's body as `body` does; return JSON in UTF-8, and other text as it is.

        Raises:
            HttpError, ClientGoneError: as `body`; it is in no encoding of Unicode (400).
        """
        data = await self.body()
        if self.headers.get("content-type", "").lower().startswith(_BINARY_TYPES):
            return data
        text = await aside(len(data), utf8_of, data, self._bodies.largest)
        if text is not data:
            self._becomes(text)
        return text

    def _body_ended(self) -> None:
        if self._arrival is not None:
            self._bodies.release(self._arrival)
            self._arrival = None

    def when_gone(self, leave: Callable[[], object]) -> None:
        """Have something called when the client closes its connection, or has done so."""
        self.client.on_gone = leave
        if self.client.is_gone:
            leave()

    async def unless_gone(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work, and leave it when the client leaves. Raises ClientGoneError then."""
        task = asyncio.ensure_future(work)
        self.when_gone(task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            if self.client.is_gone:
                raise ClientGoneError from None
            raise

    @property
    def has_begun(self) -> bool:
        """Whether the client has a part of the response, so that its status cannot change."""
        return bool(self.status) and self.client.has_begun

    @property
    def has_left(self) -> bool:
        """Whether the client closed its connection before it had the whole response."""
        return self.client.is_gone

    @property
    def outcome(self) -> str:
        """How the exchange finished: `whole`, `failed`, or `left` by the client."""
        if self.has_left:
            return "left"
        return "failed" if self.error or self.status >= HTTP_ERROR else "whole"

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin the response. Raises EngineError: it has a header that HTTP does not allow."""
        # Not later: the server's protocol would leave the response without any beginning.
        lines = [line_of(*each) for each in headers.items()]
        self.status = int(status)  # As in HttpError.
        self.is_event_stream = headers.get("content-type", "").startswith(EVENTS)
        named = {name.lower() for name, _ in lines}
        if b"content-length" not in named and status not in _EMPTY:
            lines += [line for line in _STREAM_HEADERS.items() if line[0] not in named]
            # HTTP/1.0 knows no chunks.
            is_old = self._scope.get("http_version") == "1.0"
            self._ends_at_close = is_old and not self._has_head_only
        if self._ends_at_close:
            self.client.end_at_close()
        lines += self.extra_headers
        await self._send({"type": "http.response.start", "status": status, "headers": lines})
        self._written_at = time.monotonic()
        if self.is_event_stream:
            self._ping_timer = asyncio.get_running_loop().call_later(PING_SECONDS, self.ping)

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        self._is_over = is_last
        self._written_at = time.monotonic()
        if self._ends_at_close:
            self.client.announce(len(data))
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    def has_passed(self, num_tokens: int, now: float) -> None:
        self.num_tokens += num_tokens
        self._written_at = now

    async def respond(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        length = {} if status == HTTPStatus.NO_CONTENT else {"content-length": str(len(data))}
        await self.start(status, {**headers, **length})
        await self.write(data, is_last=True)

    async def respond_json(
        self, body: object, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        await self.respond(status, msgspec.json.encode(body), {"content-type": JSON, **headers})

    def ping(self) -> None:
        """Say on an event stream that has been silent for a while that the server is there."""
        now = time.monotonic()
        if self._is_over:
            return
        loop = asyncio.get_running_loop()
        silent = now - self._written_at
        if silent >= PING_SECONDS:
            self._written_at, silent = now, 0.0
            # What waits for a client that does not read tells it the same.
            if self.client.is_free:
                self.client.write(self.ping_text)
        self._ping_timer = loop.call_later(PING_SECONDS - silent, self.ping)

    def close(self) -> None:
        """Forget the exchange, whether it has come to its end or its client has left.

        A response without its end is left so: its client must not take it for whole.
        """
        if not (self._is_over or self.has_left):
            self.error = self.error or "unfinished"
            if self.has_begun:
                self.client.cut()
        self._is_over = True
        self._body_ended()
        self.client.release()
        if self._ping_timer is not None:
            self._ping_timer.cancel()
