"""The same request once more on a connection is answered without the application."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from lmi_backend.frontend.protocol import CLIENT, bounded_protocol

ASKED = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
OTHER = b"GET /metrics HTTP/1.1\r\nHost: b\r\n\r\n"


class Application:
    """Says how often it was asked, and may say what comes next."""

    def __init__(self) -> None:
        self.asked = 0
        self.next: bytes | None = b"again"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        client = scope[CLIENT]
        client.again = lambda: self.next and client.response([(b"x-next", b"yes")], self.next)
        body = str(self.asked).encode()
        head = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def application() -> Application:
    return Application()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def connection(application: Application) -> AsyncIterator[Connection]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        protocol = bounded_protocol(head_seconds=5, idle_seconds=5)
        config = uvicorn.Config(
            application, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve([listener]))
        while not server.started:  # noqa: ASYNC110  uvicorn tells nobody
            await asyncio.sleep(0.01)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        yield reader, writer
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        server.should_exit = True
        await serving


async def _ask(connection: Connection, data: bytes) -> tuple[bytes, bytes]:
    connection[1].write(data)
    return await _answer(connection)


async def _answer(connection: Connection) -> tuple[bytes, bytes]:
    """Return an answer's head and body."""
    reader, _ = connection
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
    return head, await reader.readexactly(int(length.partition(b":")[2]))


async def test_the_same_request_is_answered_without_the_application(
    connection: Connection, application: Application
) -> None:
    assert (await _ask(connection, ASKED))[1] == b"1"
    for _ in range(3):
        head, body = await _ask(connection, ASKED)
        assert body == b"again"
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        # What all responses have.
        assert b"\r\ndate: " in head
        assert b"\r\nx-next: yes\r\n" in head
    assert application.asked == 1


async def test_what_differs_or_is_not_known_is_asked_for(
    connection: Connection, application: Application
) -> None:
    assert (await _ask(connection, ASKED))[1] == b"1"
    assert (await _ask(connection, OTHER))[1] == b"2"
    assert (await _ask(connection, ASKED))[1] == b"3"
    application.next = None
    assert (await _ask(connection, ASKED))[1] == b"4"
    application.next = b"again"
    assert (await _ask(connection, ASKED))[1] == b"again"
    # Two at once, and one in two parts.
    connection[1].write(ASKED + ASKED)
    assert [(await _answer(connection))[1] for _ in range(2)] == [b"5", b"6"]
    connection[1].write(ASKED[:20])
    await asyncio.sleep(0.05)
    assert (await _ask(connection, ASKED[20:]))[1] == b"7"


async def test_a_body_that_looks_like_the_request_is_none(
    connection: Connection, application: Application
) -> None:
    """A proxy that shares a connection among clients must not get one answer too many."""
    length = 0
    for _ in range(3):
        asked = b"GET /metrics HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length
        length = len(asked)
    assert (await _ask(connection, asked))[1] == b"1"
    # Its body, which is the same bytes.
    connection[1].write(asked)
    await asyncio.sleep(0.05)
    assert (await _ask(connection, ASKED))[1] == b"2"
    assert application.asked == 2


async def test_after_a_beginning_the_same_bytes_are_no_request(
    connection: Connection, application: Application
) -> None:
    assert (await _ask(connection, ASKED))[1] == b"1"
    connection[1].write(b"GET /x HTTP/1.1\r\nx: ")
    await asyncio.sleep(0.05)
    # It is the rest of a header.
    assert (await _ask(connection, ASKED))[1] == b"2"
    assert application.asked == 2
