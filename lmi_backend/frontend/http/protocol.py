"""HTTP/1.1 on one connection: uvicorn's, with bounds of size, time and number."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lmi_backend.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


SERVER: Final = b"*"
"""The target of a request about the server as a whole; OPTIONS only."""
_HOST: Final = b"host"
_END: Final = re.compile(rb"[/?]")
"""What follows the authority of a URL."""


def names_one_host(headers: Sequence[tuple[bytes, bytes]], version: str) -> bool:
    """Tell whether a request names its server once, as HTTP/1.1 demands."""
    named = [name for name, _ in headers].count(_HOST)
    return named == 1 or (not named and version != "1.1")


def target_of(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a target as the path and query that it means; `*` for the server as a whole.

    A client of a proxy writes a whole URL, and proxies may pass it on. Its host counts then, not
    that of `Host`.

    Args:
        headers: those of the request; `Host` becomes the URL's.

    Raises:
        ValueError: no server of HTTP has such a target.
        httptools.HttpParserInvalidURLError: it is no URL.
    """
    is_general = method == b"OPTIONS"
    if target.startswith(b"/") or method == b"CONNECT" or (is_general and target == SERVER):
        return target
    url = httptools.parse_url(target)
    scheme = (url.schema or b"").lower()
    if scheme not in (b"http", b"https") or url.userinfo is not None:
        raise ValueError(target)
    host = _END.split(target.partition(b"://")[2], maxsplit=1)[0]
    headers[:] = [*(each for each in headers if each[0] != _HOST), (_HOST, host)]
    if is_general and url.path is None and url.query is None:
        return SERVER
    return (url.path or b"/") + (b"" if url.query is None else b"?" + url.query)


UNREAD_BYTES: Final = 512 << 20
"""Of what all clients together have been sent and have not read."""


def end_unread(connections: Iterable[BoundedProtocol], limit: int = UNREAD_BYTES) -> int:
    """Close connections until what waits for all is few enough bytes.

    Each is the one whose client reads least, of the key for which most waits.

    Returns:
        How many were closed.
    """
    unread: Shares[asyncio.Transport] = Shares()
    for each in connections:
        unread.add(each.transport, each.transport.get_write_buffer_size(), each.owner)
    closed = list(unread.excess(limit))
    for transport in closed:
        transport.abort()
    return len(closed)


CLIENT: Final = "lmi_backend.client"
"""Key of an ASGI scope: its `Client`."""


class Client:
    """The client of one request, without a task or a turn of one for what ASGI says by messages.

    Each of them costs more than a part of a streamed response.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._ends_at_close = False
        self.on_gone: Callable[[], object] = _nothing
        """Called when the client closes its connection before it has the whole response."""

    @property
    def has_sent_all(self) -> bool:
        return not self._cycle.more_body

    @property
    def has_begun(self) -> bool:
        return self._cycle.response_started

    @property
    def is_gone(self) -> bool:
        """Whether it has closed its connection before it had the whole response."""
        return self._cycle.disconnected

    @property
    def is_free(self) -> bool:
        """Whether a part can be written now: the response has begun, and its client reads."""
        cycle = self._cycle
        if cycle.response_complete or cycle.disconnected or not cycle.response_started:
            return False
        has_no_length = cycle.chunked_encoding or self._ends_at_close
        return bool(has_no_length) and not cycle.flow.write_paused

    def unsent(self) -> int:
        return self._cycle.transport.get_write_buffer_size()

    def belong_to(self, owner: str) -> None:
        """Let what the connection has not sent count for an owner."""
        protocol: Any = self._cycle.transport.get_protocol()
        protocol.owner = owner

    def pass_on(self, data: bytes) -> bool:
        """Write a part of one byte or more if `is_free`; return whether that was so."""
        cycle = self._cycle
        if not cycle.chunked_encoding or not cycle.response_started:
            # The latter is seldom so, and the former is HTTP/1.0, or a response with a length.
            is_free = self.is_free
            if is_free:
                self.write(data)
            return is_free
        if cycle.response_complete or cycle.disconnected or cycle.flow.write_paused:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def write(self, data: bytes) -> None:
        """Write a part of one byte or more, where `is_free`."""
        framed = data if self._ends_at_close else b"%x\r\n%b\r\n" % (len(data), data)
        self._cycle.transport.write(framed)

    def end_at_close(self) -> None:
        """Let the response, which has no length, come without chunks; called before it begins."""
        self._ends_at_close = True
        self._cycle.chunked_encoding = False

    def announce(self, size: int) -> None:
        """Say how many bytes come next of such a response; uvicorn takes them for its length."""
        self._cycle.expected_content_length = size

    def cut(self) -> None:
        """Close the connection without the end of the response."""
        cycle = self._cycle
        if not (cycle.response_complete or cycle.disconnected):
            # uvicorn would report as a fault that the application has not ended it.
            cycle.response_complete = True
            if self._ends_at_close:
                _reset(cycle.transport)
            else:
                cycle.transport.close()

    def leave(self) -> None:
        cycle = self._cycle
        if not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            self.on_gone()

    def release(self) -> None:
        """Forget the request once it is answered: without this, it is a reference cycle.

        Python looks for cycles after so many objects, however many bytes each of them holds.
        """
        self.on_gone = _nothing
        self._cycle.scope.pop(CLIENT, None)  # type: ignore[typeddict-item]


def _reset(transport: asyncio.Transport) -> None:
    """Close a connection so that its client sees a fault; an ordinary end would be the response's.

    What the system has not sent yet is lost.
    """
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _nothing() -> None:
    return None


HEAD_BYTES: Final = 1 << 16
"""Of what is not a body between two parts of bodies: a head, a chunk's extension, trailers."""
MOST_HEADERS: Final = 256
WAITING_BYTES: Final = 1 << 16
"""Of pipelined requests that wait for the response to an earlier one; then reading pauses."""
# Fed to the parser at once where no body is due: at most so much of the next requests is parsed.
_PIECE: Final = 2048
_MOST_PARTS: Final = 64
"""Parts of a body in a piece; tiny chunks are many more, and take much longer than their bytes."""
FAREWELL_SECONDS: Final = 3.0
"""Time that a client has to close its connection to a server that stops; only TLS waits for it."""
# Of the descriptors this process may have; the others are for models and for Triton's port.
_SHARE: Final = 0.75
_LENGTH: Final = b"content-length"
_FRAMING: Final = (_LENGTH, b"transfer-encoding")
_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


def bounded_protocol(*, head_seconds: float, quiet_seconds: float) -> type[BoundedProtocol]:
    """Return the protocol of the connections of one server.

    Args:
        head_seconds: time that a new connection may take to begin, and each request's headers.
        quiet_seconds: time between two requests.
    """
    settings = {"head_seconds": head_seconds, "quiet_seconds": quiet_seconds, "quiet": {}}
    return type("Protocol", (BoundedProtocol,), settings)


class _Flow(FlowControl):
    """Does not resume reading, as each request does, while enough waits that was read before."""

    is_full = False

    def resume_reading(self) -> None:
        if not self.is_full:
            super().resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections whose headers never end, that do nothing, or are too many.

    Requests of one connection are answered one after the other: what a client pipelines waits
    unparsed. The application bounds the body. If there is no room for another connection, the
    longest idle one is closed. If each has a request, the new one is.
    """

    head_seconds: float
    quiet_seconds: float
    owner = ""
    """On whose behalf the last response is, as `Exchange.tenant`."""
    quiet: dict[BoundedProtocol, None]
    """All that have no request, in the order in which that began."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        self._is_in_head, self._is_replaying, self._is_ending = True, False, False
        self._overhead = 0
        """Bytes since the last part of a body."""
        self._body_left = 0
        """Bytes of a body that are due; 0 where its length is not known."""
        self._parts = 0  # of a body, in the last piece
        self._has_turn = False
        """Whether the rest of what waits is parsed in the loop's next turn."""
        self.num_waiting = b""
        """Bytes that wait for the response to an earlier request, or for the next turn."""
        self._clients: deque[Client] = deque()
        """Of requests without a whole response: the one that is answered, and what follows it."""
        self.quiet[self] = None
        self.timeout_keep_alive = self.quiet_seconds  # type: ignore[assignment]  # of a timer
        self._expect_head()
        if len(self.connections) > resource.getrlimit(resource.RLIMIT_NOFILE)[0] * _SHARE:
            next(iter(self.quiet)).timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        self.quiet.pop(self, None)
        self.num_waiting = b""
        super().connection_lost(exc)
        # uvicorn tells the newest request only.
        while self._clients:
            self._clients.popleft().leave()

    def data_received(self, data: bytes) -> None:
        """Take bytes; what follows a whole request waits until that is answered."""
        self.num_waiting = self.num_waiting + data if self.num_waiting else data
        if self._has_turn:
            self._hold(self.num_waiting)
        else:
            self._feed()

    def _feed(self) -> None:
        data, self.num_waiting, at = self.num_waiting, b"", 0
        self._parts = 0
        while at < len(data) and not self._must_wait:
            piece = data[at : at + max(_PIECE, self._body_left)]
            at += self._parse(piece)
            if self._overhead > HEAD_BYTES or self._has_many_headers:
                self._end_with(_TOO_LONG)
        rest = b"" if self.transport.is_closing() else data[at:]
        self._has_turn = bool(rest) and not self._is_answering
        if self._has_turn:
            self.loop.call_soon(self._feed)
        self._hold(rest)

    @property
    def _must_wait(self) -> bool:
        return self._parts > _MOST_PARTS or self._is_answering or self.transport.is_closing()

    @property
    def _has_many_headers(self) -> bool:
        return self._is_in_head and len(self.headers or ()) > MOST_HEADERS

    def _parse(self, piece: bytes) -> int:
        self._overhead += len(piece)
        self._parts = 0
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            return self._decline(int(upgrade.args[0]), len(piece))
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        return len(piece)

    def _decline(self, offset: int, size: int) -> int:
        """Answer a request that offers an upgrade as if it did not; return its parsed part.

        Java's client offers HTTP/2 at its first request. The parser takes what follows the head for
        bytes of another protocol; here they are the request's body, and the next request.
        """
        if self.scope["method"] == "CONNECT":
            self.cycle.keep_alive = False
            return size
        framing = [b"%b: %b\r\n" % each for each in self.scope["headers"] if each[0] in _FRAMING]
        if framing:
            self.cycle.more_body = self._is_replaying = True
            self.parser = httptools.HttpRequestParser(self)
            self.parser.feed_data(b"".join((b"POST / HTTP/1.1\r\n", *framing, b"\r\n")))
            self._is_replaying = False
        return offset

    @property
    def _is_answering(self) -> bool:
        """Whether a whole request is here, and its response is not yet complete."""
        cycle = self.cycle
        return cycle is not None and not (cycle.more_body or cycle.response_complete)

    def _hold(self, data: bytes) -> None:
        """Let what was pipelined wait. Reading continues: it tells when the client leaves."""
        self.num_waiting = data
        was_full, self.flow.is_full = self.flow.is_full, len(data) > WAITING_BYTES
        if self.flow.is_full:
            self.flow.pause_reading()
        elif data or was_full:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Close the connection; say why, if that is what the client waits for."""
        if self._may_refuse:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _end_with(self, response: bytes) -> None:
        if self._may_refuse:
            self.transport.write(response)
        self.transport.close()

    @property
    def _may_refuse(self) -> bool:
        """Whether no client can mistake a refusal for the response to an earlier request."""
        return not any(client.has_begun or client.has_sent_all for client in self._clients)

    def on_message_begin(self) -> None:
        if self._is_replaying:
            return
        super().on_message_begin()
        self._is_in_head, self._overhead, self._body_left = True, 0, 0
        self._expect_head()

    def on_headers_complete(self) -> None:
        if self._is_replaying:
            return
        version = self.parser.get_http_version()
        if not names_one_host(self.headers, version):
            raise ValueError
        if self._has_many_headers:
            self._overhead = HEAD_BYTES + 1
        self._body_left = next((int(each) for name, each in self.headers if name == _LENGTH), 0)
        self.url = target_of(self.parser.get_method(), self.url, self.headers)
        # HTTP/1.0 has no responses before the response.
        self.expect_100_continue &= version != "1.0"
        self._is_in_head = False
        self.quiet.pop(self, None)
        self._unset_keepalive_if_required()
        super().on_headers_complete()
        # Trailers, which are no headers, go where nobody reads them.
        self.headers = []
        client = Client(self.cycle)
        self._clients.append(client)
        # Its task has not run yet.
        self.cycle.scope[CLIENT] = client  # type: ignore[typeddict-unknown-key]

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        self._parts += 1
        self._body_left = max(0, self._body_left - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Read on, although a long last part has paused that: it tells when the client leaves."""
        super().on_message_complete()
        if self.flow.read_paused:
            self.flow.resume_reading()

    def shutdown(self) -> None:
        """End after what is being answered, as the server does."""
        self._is_ending = True
        super().shutdown()
        self._end_soon()

    def _end_soon(self) -> None:
        if self._is_ending and self.scheme == "https" and self.transport.is_closing():
            self.loop.call_later(FAREWELL_SECONDS, self.transport.abort)

    def on_response_complete(self) -> None:
        """Wait for the next request; the rest of a body that nobody reads does not prolong it."""
        if self._clients:
            self._clients.popleft()
        super().on_response_complete()
        self._end_soon()
        if self.transport.is_closing():
            return
        if self.cycle.response_complete:
            self.quiet[self] = None
            if self._is_in_head:
                self._expect_head()
        if self.num_waiting:
            self.loop.call_soon(self._feed)

    def _expect_head(self) -> None:
        """Let uvicorn's timer of the time between two requests be that of the next one's head."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.head_seconds, self.timeout_keep_alive_handler
        )

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection where its client has nothing to wait for."""
        # A head that comes slowly behind a request does not end the response to that.
        if self._clients:
            return
        self.quiet.pop(self, None)
        self.transport.close()
