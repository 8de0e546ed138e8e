"""One HTTP request and its response, over ASGI."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.errors import HTTP_ERROR, EngineError, HttpError
from lmi_backend.frontend.bodies import Bodies, ClientGoneError, too_large
from lmi_backend.frontend.client import CLIENT
from lmi_backend.printable import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from lmi_backend.frontend.client import Client

    Scope = Mapping[str, Any]
    Receive = Callable[[], Awaitable[Mapping[str, Any]]]
    Send = Callable[[Mapping[str, Any]], Awaitable[None]]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_NO_CONTENT: Final = 204
_TOO_SLOW: Final = 408
_UNSUPPORTED: Final = 415
HELD_BYTES: Final = 8 << 20
"""Of an answer to a client of HTTP/1.0, which gets it when it is whole."""
PING_SECONDS: Final = 15.0
"""Of silence on an event stream, after which a comment is sent: proxies close idle ones."""
_PING: Final = b": ping\n\n"
_EVENT_HEADERS: Final = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))


class Exchange:
    """A request that is being answered."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, bodies: Bodies | None = None
    ) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.began = time.monotonic()
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self.parameters: Mapping[str, str] = scope.get("path_params", {})
        self.status = 0
        """Of the response; 0 before it has begun."""
        self.is_event_stream = False
        """Whether the response is a stream of events."""
        self.error = ""
        """Name of the error with which the answer failed; empty if it did not."""
        self.request_id = ""
        self.tenant = ""
        """On whose behalf, as the key says; empty where there are no keys."""
        self.is_operator = False
        """Whether the client may manage what is served."""
        self.has_token_limit = False
        """Whether the client's key has a limit of tokens."""
        self.num_prompt_tokens = self.num_tokens = 0
        """Of the answer so far, where the engine counts them."""
        self.extra_headers: list[tuple[bytes, bytes]] = []
        # HTTP/1.0 knows no chunks: without a length, the answer is held until it is whole.
        self._holds = scope.get("http_version") == "1.0"
        self._start: dict[str, Any] = {}
        self._held = bytearray()
        self._is_over = False
        self._written_at = 0.0
        self._ping_timer: asyncio.TimerHandle | None = None
        self._client: Client = scope[CLIENT]
        self._bodies = bodies or Bodies()
        self._body_size = 0

    @property
    def query(self) -> str:
        """The query string as it was written."""
        text: bytes = self._scope.get("query_string", b"")
        return text.decode("latin-1")

    @property
    def raw_path(self) -> str:
        """The path as it was written, before %-escapes were read."""
        raw: bytes = self._scope.get("raw_path") or self.path.encode()
        return raw.decode("latin-1").partition("?")[0]

    async def body(self, limit: int, seconds: float) -> bytes:
        """Read the request's body.

        Args:
            limit: bytes it may have.
            seconds: time it may take.

        Raises:
            HttpError: it is too large (413), too slow (408) or compressed (415), or all bodies
                together are too large (503).
            ClientGoneError: the client left in the middle.
        """
        encoding = self.headers.get("content-encoding", "identity")
        if encoding.lower() not in ("identity", ""):
            text = f"a compressed body is not taken (Content-Encoding: {printable(encoding)})"
            raise HttpError(_UNSUPPORTED, text)
        if int(self.headers.get("content-length") or 0) > limit:
            raise too_large(limit)
        self._body_ended()
        try:
            data, self._body_size = await self._bodies.read(self._receive, limit, seconds)
        except HttpError as error:
            if error.status == _TOO_SLOW:
                self.extra_headers.append((b"connection", b"close"))
            raise
        return data

    def _body_ended(self) -> None:
        self._bodies.release(self._body_size)
        self._body_size = 0

    @property
    def direct(self) -> Client | None:
        """What writes at once the parts that follow the response's beginning, where that can be."""
        return None if self._holds else self._client

    def when_gone(self, leave: Callable[[], object]) -> None:
        """Have something called when the client closes its connection, or has done so."""
        self._client.on_gone = leave
        if self._client.is_gone:
            leave()

    async def unless_gone(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work, and leave it when the client has gone.

        Raises:
            ClientGoneError: the client closed its connection.
        """
        task = asyncio.ensure_future(work)
        self.when_gone(task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            if self._client.is_gone:
                raise ClientGoneError from None
            raise

    @property
    def has_begun(self) -> bool:
        """Whether the client has a part of the response, so that its status cannot change."""
        return bool(self.status) and self._client.has_begun

    @property
    def has_left(self) -> bool:
        """Whether the client closed its connection before it had the whole response."""
        return self._client.is_gone

    @property
    def outcome(self) -> str:
        """How the exchange ended: `whole`, `failed`, or `left` by the client."""
        if self.has_left:
            return "left"
        return "failed" if self.error or self.status >= HTTP_ERROR else "whole"

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin the response."""
        self.status = status
        lines = [
            (name.encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in headers.items()
        ]
        self.is_event_stream = headers.get("content-type", "").startswith(EVENTS)
        if self.is_event_stream:
            lines += (line for line in _EVENT_HEADERS if line[0].decode() not in headers)
        lines += self.extra_headers
        self._start = {"type": "http.response.start", "status": status, "headers": lines}
        self._holds = self._holds and "content-length" not in headers
        if not self._holds:
            await self._send(self._start)
        self._written_at = time.monotonic()
        if self.is_event_stream:
            self._ping_timer = asyncio.get_running_loop().call_later(PING_SECONDS, self.ping)

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Send the next bytes of the response."""
        self._is_over = is_last
        self._written_at = time.monotonic()
        if self._holds:
            self._held += data
            if len(self._held) > HELD_BYTES:
                self._held.clear()
                raise EngineError(f"more than {HELD_BYTES >> 20} MiB at once: use HTTP/1.1")
            if not is_last:
                return
            length = str(len(self._held)).encode()
            self._start["headers"].append((b"content-length", length))
            await self._send(self._start)
            data = bytes(self._held)
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    def has_written(self) -> None:
        """Note that `direct` has just written."""
        self._written_at = time.monotonic()

    async def respond(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        """Send a whole response."""
        length = {} if status == _NO_CONTENT else {"content-length": str(len(data))}
        await self.start(status, {**headers, **length})
        await self.write(data, is_last=True)

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
            if self._client.is_free:
                self._client.write(_PING)
        self._ping_timer = loop.call_later(PING_SECONDS - silent, self.ping)

    def close(self) -> None:
        """Forget the exchange, whether it has come to its end or its client has left.

        A response without its end is left so: its client must not take it for whole.
        """
        if not (self._is_over or self.has_left):
            self.error = self.error or "unfinished"
            if self.has_begun:
                self._client.cut()
        self._is_over = True
        self._body_ended()
        self._client.release()
        if self._ping_timer is not None:
            self._ping_timer.cancel()
