"""The proxy: bytes go through as they come; a copy of them is read."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lmi_backend.migrate.recording import Exchanges
from lmi_backend.printable import say

if TYPE_CHECKING:
    from lmi_backend.migrate.recording import Files

_PART_BYTES: Final = 1 << 16
_CONNECT_SECONDS: Final = 10.0
_DRAIN_SECONDS: Final = 30.0
"""Time that connections have to finish when the proxy is stopped."""
_POLL_SECONDS: Final = 0.05
_CHANCE: Final = 1_000_000
_NO_SERVER: Final = (
    b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/plain\r\ncontent-length: 31\r\n"
    b"connection: close\r\n\r\nthe server cannot be connected\n"
)


@dataclass(frozen=True)
class ProxySettings:
    """What the proxy is started with."""

    upstream: str
    """Address of the server: http://HOST:PORT."""
    host: str
    port: int
    share: float = 1.0
    """Of the requests that are written."""
    tls: ssl.SSLContext | None = None
    """For clients; None: they speak plain HTTP."""
    upstream_tls: ssl.SSLContext | None = None


class Proxy:
    """Connects each client to the server, and hands the exchanges to files."""

    def __init__(self, settings: ProxySettings, files: Files) -> None:
        self._settings, self._files = settings, files
        self._open: dict[asyncio.Task[None], Exchanges] = {}

    async def run(self, on_ready: Callable[[int], None] = lambda _: None) -> None:
        """Serve until SIGTERM or SIGINT; then let open exchanges finish."""
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        settings = self._settings
        server = await asyncio.start_server(
            self._accept, settings.host, settings.port, ssl=settings.tls, limit=_PART_BYTES
        )
        on_ready(server.sockets[0].getsockname()[1])
        await stop.wait()
        server.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._drain(), _DRAIN_SECONDS)
        await self._end(list(self._open))

    async def _drain(self) -> None:
        """Close connections as soon as no answer is awaited on them."""
        while self._open:
            await self._end([task for task, exchanges in self._open.items() if exchanges.is_idle])
            await asyncio.sleep(_POLL_SECONDS)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  called as one
        self._open[task] = Exchanges(self._files.take, self._is_chosen)
        try:
            await self._connect(reader, writer, self._open[task])
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            # A client or the server left; the other one has been told by the closed connection.
            pass
        finally:
            del self._open[task]
            writer.close()

    async def _connect(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        exchanges: Exchanges,
    ) -> None:
        parts = urlsplit(self._settings.upstream)
        context = self._settings.upstream_tls
        port = parts.port or (443 if context else 80)
        opening = asyncio.open_connection(parts.hostname, port, ssl=context, limit=_PART_BYTES)
        try:
            up_reader, up_writer = await asyncio.wait_for(opening, _CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            say(f"{self._settings.upstream}: cannot be connected: {error}", "WARNING")
            writer.write(_NO_SERVER)
            await writer.drain()
            return
        try:
            sending = asyncio.create_task(_pump(reader, up_writer, exchanges.feed_request))
            await _pump(up_reader, writer, exchanges.feed_answer)
            exchanges.end()
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending
        finally:
            up_writer.close()

    def _is_chosen(self) -> bool:
        return secrets.randbelow(_CHANCE) < self._settings.share * _CHANCE


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, copy: Callable[[bytes], None]
) -> None:
    """Pass bytes on until their end, which is passed on too; read a copy after that."""
    while data := await reader.read(_PART_BYTES):
        writer.write(data)
        copy(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        # TLS cannot be closed in one direction.
        writer.close()
