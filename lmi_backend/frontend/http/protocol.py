"""HTTP/1.1 on one connection: uvicorn's, with bounds of size, time and number."""

from __future__ import annotations

import asyncio
import resource
from collections import deque
from typing import Final

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lmi_backend.frontend.http.client import CLIENT, Client
from lmi_backend.frontend.http.deadline import Deadline
from lmi_backend.frontend.http.target import names_one_host, target_of

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


def bounded_protocol(*, head_seconds: float, idle_seconds: float) -> type[BoundedProtocol]:
    """Return the protocol of the connections of one server.

    Args:
        head_seconds: time that a new connection may take to begin, and each request's headers.
        idle_seconds: time between two requests.
    """
    settings = {"head_seconds": head_seconds, "idle_seconds": idle_seconds, "idle": {}}
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
    idle_seconds: float
    owner = ""
    """On whose behalf the last response is, as `Exchange.tenant`."""
    idle: dict[BoundedProtocol, None]
    """All that have no request, in the order in which that began."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give a new connection time to say what it wants."""
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
        self._waiting = b""
        """Bytes that wait for the response to an earlier request, or for the next turn."""
        self._clients: deque[Client] = deque()
        """Of requests without a whole response: the one that is answered, and what follows it."""
        self.idle[self] = None
        self._deadline = Deadline(self.loop, self._expire)
        """Of the next request, or of its head."""
        self._deadline.begin(self.head_seconds)
        if len(self.connections) > resource.getrlimit(resource.RLIMIT_NOFILE)[0] * _SHARE:
            next(iter(self.idle))._expire()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell each request of the connection that its client has gone."""
        self._deadline.stop()
        self.idle.pop(self, None)
        self._waiting = b""
        super().connection_lost(exc)
        # uvicorn tells the newest request only.
        while self._clients:
            self._clients.popleft().leave()

    def data_received(self, data: bytes) -> None:
        """Take bytes; what follows a whole request waits until that is answered."""
        self._waiting = self._waiting + data if self._waiting else data
        if self._has_turn:
            self._hold(self._waiting)
        else:
            self._feed()

    def _feed(self) -> None:
        data, self._waiting, at = self._waiting, b"", 0
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
        """Whether nothing more is parsed now."""
        return self._parts > _MOST_PARTS or self._is_answering or self.transport.is_closing()

    @property
    def _has_many_headers(self) -> bool:
        return self._is_in_head and len(self.headers or ()) > MOST_HEADERS

    def _parse(self, piece: bytes) -> int:
        """Parse bytes; return how many were."""
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
        self._waiting = data
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
        """Begin to count a request's headers."""
        if self._is_replaying:
            return
        super().on_message_begin()
        self._is_in_head, self._overhead, self._body_left = True, 0, 0
        self._deadline.begin(self.head_seconds)

    def on_headers_complete(self) -> None:
        """Let the application have the request."""
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
        self.idle.pop(self, None)
        self._deadline.end()
        super().on_headers_complete()
        # Trailers, which are no headers, go where nobody reads them.
        self.headers = []
        client = Client(self.cycle)
        self._clients.append(client)
        # Its task has not run yet.
        self.cycle.scope[CLIENT] = client  # type: ignore[typeddict-unknown-key]

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
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
        # It would close the connection in the middle of a later response.
        self._unset_keepalive_if_required()
        self._end_soon()
        if self.transport.is_closing():
            return
        if self.cycle.response_complete:
            self.idle[self] = None
            self._deadline.begin(self.head_seconds if self._is_in_head else self.idle_seconds)
        if self._waiting:
            self.loop.call_soon(self._feed)

    def _expire(self) -> None:
        # A head that comes slowly behind a request does not end the response to that.
        if self._clients:
            return
        self.idle.pop(self, None)
        self.transport.close()
