"""The proxy changes no byte, in either direction, whatever is sent."""

import asyncio
import contextlib
import os
import random
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from lmi_backend.migrate.proxy import Proxy, ProxySettings
from lmi_backend.migrate.recording import Files
from tests.support.certificates import make_pair

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REQUEST = b"GET /ping HTTP/1.1\r\nhOsT:  a\r\nX-Odd:\tb\r\n\r\n"


class Upstream:
    """A server that answers each connection with given bytes, and keeps what it gets."""

    def __init__(self, answer: bytes, tls: ssl.SSLContext | None = None) -> None:
        self.got = b""
        self._answer, self._tls = answer, tls

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await self._answer_with(random.Random(1), reader, writer)
        writer.close()

    async def _answer_with(
        self, chance: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.got += await reader.read(1)
        answer = self._answer
        while answer:
            size = chance.randrange(1, 5000)
            writer.write(answer[:size])
            await writer.drain()
            answer = answer[size:]
        if self._tls is None:
            writer.write_eof()
            self.got += await reader.read()


@contextlib.asynccontextmanager
async def proxied(settings: ProxySettings, files: Files) -> AsyncIterator[int]:
    ready: asyncio.Queue[int] = asyncio.Queue()
    task = asyncio.create_task(Proxy(settings, files).run(ready.put_nowait))
    try:
        yield await ready.get()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await task
        files.close()


async def exchanged(port: int, data: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(data)
    if tls is None:
        writer.write_eof()
    got = await reader.read()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return got


async def test_bytes_pass_as_they_are(tmp_path: Path) -> None:
    chance = random.Random(7)
    noise = chance.randbytes(300_000)
    for number, (sent, answer, written) in enumerate(
        [
            (REQUEST, ANSWER, 1),
            (noise, noise[::-1], 0),
            (REQUEST * 3, ANSWER * 3, 3),
            (b"a", b"", 0),
        ]
    ):
        upstream = Upstream(answer)
        files = Files(tmp_path / str(number), 1 << 20)
        async with upstream.running() as at:
            settings = ProxySettings(f"http://127.0.0.1:{at}", "127.0.0.1", 0)
            async with proxied(settings, files) as port:
                assert await exchanged(port, sent) == answer
        assert upstream.got == sent
        assert (files.written, files.dropped) == (written, 0)


async def test_tls_on_both_sides(tmp_path: Path) -> None:
    file, key = make_pair(tmp_path, "localhost")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file, key)
    client = ssl.create_default_context(cafile=file)
    upstream = Upstream(ANSWER, server)
    files = Files(tmp_path / "recorded", 1 << 20)
    async with upstream.running() as at:
        settings = ProxySettings(
            f"https://127.0.0.1:{at}", "127.0.0.1", 0, tls=server, upstream_tls=client
        )
        async with proxied(settings, files) as port:
            assert await exchanged(port, REQUEST, client) == ANSWER
    assert files.written == 1


async def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    upstream = Upstream(b"")
    async with upstream.running() as at:
        pass
    files = Files(tmp_path / "recorded", 1 << 20)
    async with proxied(ProxySettings(f"http://127.0.0.1:{at}", "127.0.0.1", 0), files) as port:
        assert (await exchanged(port, REQUEST)).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert files.written == 0


async def test_an_idle_connection_does_not_delay_the_end(tmp_path: Path) -> None:
    upstream = Upstream(ANSWER)
    files = Files(tmp_path / "recorded", 1 << 20)
    async with upstream.running() as at:
        settings = ProxySettings(f"http://127.0.0.1:{at}", "127.0.0.1", 0)
        async with proxied(settings, files) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
