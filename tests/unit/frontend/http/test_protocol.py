"""What clients do to a connection reaches nobody but themselves, in a real uvicorn."""

import asyncio
import contextlib
import gc
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from lmi_backend.frontend.http.protocol import (
    CLIENT,
    HEAD_BYTES,
    WAITING_BYTES,
    BoundedProtocol,
    bounded_protocol,
)
from tests.support.run.waiting import HANG_SECONDS, until

HEAD_SECONDS = 600.0
"""No test takes as long."""
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


class Application:
    """Answers each request once it may, and notes what came."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.parts: list[int] = []
        """Bytes of the parts in which they came."""
        self.gone: list[int] = []
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        number = len(self.asked)
        self.asked.append(scope)
        client = scope[CLIENT]
        client.on_gone = lambda: self.gone.append(number)
        is_stream = scope["path"] == "/stream"
        if is_stream:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        body, more = b"", True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            body += message.get("body", b"")
            self.parts.append(len(message.get("body", b"")))
        self.bodies.append(body)
        await self.may.wait()
        if is_stream:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            text = str(number).encode()
            head = [(b"content-length", str(len(text)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            await send({"type": "http.response.body", "body": text})
        client.release()


@pytest.fixture
def application() -> Application:
    return Application()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def connection(application: Application) -> AsyncIterator[Connection]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        protocol = bounded_protocol(head_seconds=HEAD_SECONDS, quiet_seconds=5 * HEAD_SECONDS)
        config = uvicorn.Config(
            application, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve([listener]))
        await until(lambda: server.started)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        yield reader, writer
        application.may.set()
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
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_SECONDS)
    length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
    return head, await reader.readexactly(int(length.partition(b":")[2]))


def _protocol() -> BoundedProtocol:
    """Return the server's end of the connection."""
    found = [each for each in gc.get_objects() if isinstance(each, BoundedProtocol)]
    # Those of other tests may not be collected yet.
    (protocol,) = [each for each in found if not each.transport.is_closing()]
    return protocol


@pytest.mark.parametrize(
    "behind", [GET, GET * 20, b"G", b"GET / HTTP/1.1\r\nx: ", CHUNKED + b"3\r\nabc\r\n"]
)
async def test_the_request_that_runs_hears_that_its_client_left(
    connection: Connection, application: Application, behind: bytes
) -> None:
    """Whatever the client sent behind it."""
    application.may.clear()
    connection[1].write(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n" + behind)
    await connection[0].readuntil(b"begun")
    connection[1].close()
    await until(lambda: application.gone == [0])
    # What waited behind it is not begun.
    application.may.set()
    await until(lambda: application.bodies)
    assert len(application.asked) == 1


@pytest.mark.parametrize("request_", [CHUNKED + b"1\r\nx", CHUNKED[:-2], b"G"])
async def test_what_ends_in_the_middle_of_a_request_is_closed(
    connection: Connection, request_: bytes
) -> None:
    connection[1].write(request_)
    connection[1].write_eof()
    assert await asyncio.wait_for(connection[0].read(), HANG_SECONDS) == b""


@pytest.mark.parametrize("path", [b"/", b"/stream"])
@pytest.mark.parametrize("behind", [b"", GET * 20, CHUNKED + b"1\r\nx"])
async def test_who_sends_nothing_more_is_gone(
    connection: Connection, application: Application, path: bytes, behind: bytes
) -> None:
    """Nothing tells whether it only has no more to say; servers for HTTP take it for gone."""
    application.may.clear()
    connection[1].write(b"GET %b HTTP/1.1\r\nhost: a\r\n\r\n" % path + behind)
    await until(lambda: application.bodies)
    assert application.gone == []
    connection[1].write_eof()
    await until(lambda: application.gone == [0])
    application.may.set()
    assert not (await asyncio.wait_for(connection[0].read(), HANG_SECONDS)).endswith(b"0\r\n\r\n")


async def test_what_is_pipelined_is_answered_in_order(
    connection: Connection, application: Application
) -> None:
    number = 3000
    connection[1].write(GET * number)
    for each in range(number):
        assert (await _answer(connection))[1] == str(each).encode()


async def test_what_waits_is_bounded_however_much_is_sent(
    connection: Connection, application: Application
) -> None:
    """Also while the client gets one response after the other."""
    protocol = _protocol()
    number, seen = 30_000, 0
    for count in range(number):
        connection[1].write(GET)
        if count % 1000 == 0:
            await connection[1].drain()
    for each in range(number):
        assert (await _answer(connection))[1] == str(each).encode()
        seen = max(seen, len(protocol.num_waiting))
    # And what one read brings.
    assert 0 < seen <= WAITING_BYTES + (256 << 10)


async def test_few_requests_are_parsed_ahead(
    connection: Connection, application: Application
) -> None:
    application.may.clear()
    connection[1].write(GET * 20_000)
    await until(lambda: _protocol().flow.is_full)
    found = [each for each in gc.get_objects() if type(each).__name__ == "RequestResponseCycle"]
    # As many as a piece of a read holds, not 20,000.
    assert len(found) < 200


async def test_a_slow_head_behind_a_request_does_not_end_its_response(
    connection: Connection, application: Application
) -> None:
    application.may.clear()
    protocol = _protocol()
    protocol.head_seconds = 0.01
    connection[1].write(GET + b"GET / HT")
    await until(lambda: application.asked)
    # This timer is due after the head's, on any machine.
    await asyncio.sleep(0.02)
    protocol.head_seconds = HEAD_SECONDS
    application.may.set()
    assert (await _answer(connection))[1] == b"0"
    assert (await _ask(connection, b"TP/1.1\r\nhost: a\r\n\r\n"))[1] == b"1"


@pytest.mark.parametrize(
    ("begun", "bound"),
    [(b"", "head_seconds"), (b"GET / HT", "head_seconds"), (GET, "quiet_seconds")],
)
async def test_who_begins_no_request_in_time_is_closed(
    connection: Connection, application: Application, begun: bytes, bound: str
) -> None:
    setattr(type(_protocol()), bound, 0.01)
    place = connection[1].get_extra_info("peername")
    reader, writer = await asyncio.open_connection(*place)
    writer.write(begun)
    answered = await asyncio.wait_for(reader.read(), HANG_SECONDS)
    assert answered.count(b" 200 ") == (begun == GET)
    writer.close()


async def test_a_head_that_began_behind_a_request_is_awaited_no_longer_than_another(
    connection: Connection, application: Application
) -> None:
    application.may.clear()
    connection[1].write(GET + b"GET / HT")
    await until(lambda: application.asked)
    _protocol().head_seconds = 0.01
    application.may.set()
    assert (await _answer(connection))[1] == b"0"
    assert await asyncio.wait_for(connection[0].read(), HANG_SECONDS) == b""


async def test_the_time_between_requests_does_not_end_the_response_to_the_next(
    connection: Connection, application: Application
) -> None:
    """However long that takes: no timer of the server's that would end it is left."""
    await _ask(connection, GET)
    application.may.clear()
    connection[1].write(GET)
    await until(lambda: len(application.asked) == 2)
    found = [each for each in gc.get_objects() if isinstance(each, BoundedProtocol)]
    assert {each.timeout_keep_alive_task for each in found if each.cycle is not None} == {None}
    application.may.set()
    assert (await _answer(connection))[1] == b"1"


async def test_what_is_no_http_behind_a_response_is_not_written_into_it(
    connection: Connection, application: Application
) -> None:
    application.may.clear()
    connection[1].write(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n\x00\x00")
    rest = await asyncio.wait_for(connection[0].read(), HANG_SECONDS)
    assert b" 400 " not in rest


@pytest.mark.parametrize(
    "endless",
    [
        b"0\r\n" + b"x-a: y\r\n" * 100_000,
        b"0\r\nx-a: " + b"y" * 1_000_000,
        b"1;" + b"e" * 1_000_000,
        b"\r\n" * 100_000,
    ],
    ids=["trailers", "a long trailer", "a chunk's extension", "line ends"],
)
async def test_what_is_no_body_is_bounded_behind_the_head_too(
    connection: Connection, application: Application, endless: bytes
) -> None:
    application.may.clear()
    connection[1].write(CHUNKED + b"1\r\na\r\n")
    await until(lambda: application.asked)
    with contextlib.suppress(ConnectionError):
        connection[1].write(endless)
        await asyncio.wait_for(connection[0].read(), HANG_SECONDS)
    await until(lambda: application.gone == [0] or connection[0].at_eof())
    assert sum(map(len, (b"".join(pair) for pair in application.asked[0]["headers"]))) < HEAD_BYTES


async def test_trailers_are_no_headers(connection: Connection, application: Application) -> None:
    data = CHUNKED + b"1\r\na\r\n0\r\nx-api-key: boss\r\nhost: evil\r\n\r\n"
    assert (await _ask(connection, data))[1] == b"0"
    assert [name for name, _ in application.asked[0]["headers"]] == [b"host", b"transfer-encoding"]
    # In parts too.
    for byte in data:
        connection[1].write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await _answer(connection))[1] == b"1"
    assert [name for name, _ in application.asked[1]["headers"]] == [b"host", b"transfer-encoding"]
    assert application.bodies == [b"a", b"a"]


@pytest.mark.parametrize(
    ("framing", "body"),
    [
        (b"", b""),
        (b"content-length: 0\r\n", b""),
        (b"content-length: 3\r\n", b"abc"),
        (b"content-length: 27\r\n", GET),
        (b"transfer-encoding: chunked\r\n", b"1b\r\n" + GET + b"\r\n0\r\n\r\n"),
    ],
)
async def test_an_upgrade_is_declined_and_nothing_is_lost(
    connection: Connection, application: Application, framing: bytes, body: bytes
) -> None:
    """Java's HTTP client offers HTTP/2 at its first request."""
    upgrade = b"POST / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\n"
    connection[1].write(upgrade + framing + b"upgrade: h2c\r\n\r\n" + body + GET)
    assert [(await _answer(connection))[1] for _ in range(2)] == [b"0", b"1"]
    assert application.bodies == [GET if GET in body else body, b""]
    for byte in upgrade + framing + b"upgrade: h2c\r\n\r\n" + body:
        connection[1].write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await _answer(connection))[1] == b"2"


async def test_what_follows_connect_is_no_request(
    connection: Connection, application: Application
) -> None:
    connection[1].write(b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n" + GET)
    assert (await connection[0].read()).count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("target", "hosts"),
    [(b"/", b""), (b"/", b"Host: a\r\nhost: a\r\n"), (b"*", b"host: a\r\n"),
     (b"http://b@a/", b"host: a\r\n"), (b"http:///", b"host: a\r\n")],
)  # fmt: skip
async def test_a_target_or_a_host_that_is_none_is_refused(
    connection: Connection, application: Application, target: bytes, hosts: bytes
) -> None:
    """Which are, is seen in test_target.py."""
    connection[1].write(b"GET " + target + b" HTTP/1.1\r\n" + hosts + b"\r\n")
    assert (await connection[0].read()).startswith(b"HTTP/1.1 400 ")
    assert not application.asked


@pytest.mark.parametrize(
    ("line", "path", "host"),
    [(b"GET http://b:1?x=1 HTTP/1.1", "/", b"b:1"), (b"OPTIONS * HTTP/1.1", "*", b"a")],
)
async def test_a_target_may_be_a_url_without_a_path_or_the_server_as_a_whole(
    connection: Connection, application: Application, line: bytes, path: str, host: bytes
) -> None:
    answer = await _ask(connection, line + b"\r\nhost: a\r\n\r\n")
    assert (answer[0][:13], answer[1]) == (b"HTTP/1.1 200 ", b"0")
    (asked,) = application.asked
    assert (asked["path"], asked["raw_path"].decode()) == (path, path)
    assert asked["query_string"] == (b"x=1" if b"x=1" in line else b"")
    assert [value for name, value in asked["headers"] if name == b"host"] == [host]


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_only_http_1_1_is_told_to_continue(
    connection: Connection, application: Application, version: bytes
) -> None:
    """Who speaks HTTP/1.0 takes the first response for the only one."""
    lines = b"host: a\r\ncontent-length: 1\r\nexpect: 100-continue\r\n\r\n"
    connection[1].write(b"POST / HTTP/" + version + b"\r\n" + lines)
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    if version == b"1.1":
        assert await connection[0].readexactly(len(interim)) == interim
    answer = await _ask(connection, b"x")
    assert (answer[0][:13], answer[1]) == (b"HTTP/1.1 200 ", b"0")
    assert application.bodies == [b"x"]


async def test_too_many_headers_are_refused(
    connection: Connection, application: Application
) -> None:
    connection[1].write(b"GET / HTTP/1.1\r\nhost: a\r\n" + b"a:\r\n" * 1000 + b"\r\n")
    assert (await connection[0].read()).startswith(b"HTTP/1.1 431 ")
    assert not application.asked


@pytest.mark.parametrize(
    ("head", "end"),
    [
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 20000000\r\n\r\n", b""),
        (CHUNKED + b"1312d00\r\n", b"\r\n0\r\n\r\n"),
    ],
    ids=["length", "chunked"],
)
async def test_who_leaves_after_a_large_body_is_gone(
    connection: Connection, application: Application, head: bytes, end: bytes
) -> None:
    application.may.clear()
    connection[1].write(head + bytes(20_000_000) + end)
    await until(lambda: application.bodies)
    connection[1].close()
    await until(lambda: application.gone)
    assert application.gone == [0]


async def test_large_bodies_are_one_body(connection: Connection, application: Application) -> None:
    body = bytes(range(256)) * 10_000
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
    began = time.process_time()
    connection[1].write((head + body) * 3)
    for _ in range(3):
        await _answer(connection)
    chunks = b"".join(b"1\r\n" + body[at : at + 1] + b"\r\n" for at in range(50_000))
    await _ask(connection, CHUNKED + chunks + b"0\r\n\r\n")
    assert application.bodies == [body] * 3 + [body[:50_000]]
    # Each byte is looked at once.
    assert time.process_time() - began < 10


async def test_others_have_their_turn_between_the_tiny_chunks_of_a_body(
    application: Application, connection: Connection
) -> None:
    body = bytes(range(256)) * 100
    chunks = b"".join(b"1\r\n%c\r\n" % each for each in body)
    _, answer = await _ask(connection, CHUNKED + chunks + b"0\r\n\r\n" + GET)
    assert answer == b"0"
    assert (await _answer(connection))[1] == b"1"
    assert application.bodies == [body, b""]
    # The application, which runs in between, got it bit by bit.
    assert max(application.parts) < len(body) / 5


async def test_who_leaves_between_tiny_chunks_is_gone(
    application: Application, connection: Connection
) -> None:
    connection[1].write(CHUNKED + b"1\r\nx\r\n" * 20_000)
    await until(lambda: sum(application.parts) > 1000)
    assert (application.gone, application.bodies) == ([], [])
    connection[1].transport.abort()
    await until(lambda: application.gone)
    assert application.gone == [0]


async def test_what_is_wrong_between_tiny_chunks_is_refused(
    application: Application, connection: Connection
) -> None:
    chunks = b"1\r\nx\r\n" * 5000
    head, _ = await _ask(connection, CHUNKED + chunks + b"no chunk\r\n" + chunks)
    assert head.startswith(b"HTTP/1.1 400 ")
