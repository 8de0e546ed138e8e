"""One process of the front end. `serve` keeps one up: `python -m lmi_backend.frontend.main`.

Its settings are in the environment. Its first argument is the run folder, by which a clean-up finds
the process. The second is the descriptor of the socket that listens, or -1. The third is that of a
pipe, to which it reports its health each second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn

from lmi_backend.errors import LmiError
from lmi_backend.front_end_settings import BACKLOG, LEAVES, VARIABLE, decode, listen
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.frontend.http.certificate import certificate_of
from lmi_backend.frontend.http.log import log_to_stderr
from lmi_backend.frontend.http.protocol import BoundedProtocol, bounded_protocol, end_unread
from lmi_backend.printable import say
from lmi_backend.redaction import Redactor
from lmi_backend.threads import spare_collections

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from lmi_backend.front_end_settings import Settings
    from lmi_backend.frontend.http.certificate import Certificate


_LOOK_SECONDS: Final = 1
_BEAT_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 30
_LINGER_SECONDS: Final = 2.0
"""Time in which a front end that leaves answers on idle connections, then closed."""
_HANDSHAKE_SECONDS: Final = 10.0
_PROBES: Final = 3
_MOST_DESCRIPTORS: Final = 1 << 20
# As a program this module has another name.
_log = logging.getLogger("lmi_backend.frontend.main")


def set_client_timeout(listener: socket.socket, seconds: float) -> None:
    """Close the connections of clients that read nothing or have vanished.

    The kernel sends again what a client does not acknowledge or has no room for, for so many
    seconds. It probes an idle client. The connections inherit this.
    """
    interval = max(1, int(seconds / (2 * _PROBES)))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_USER_TIMEOUT, int(seconds * 1000)),
        (socket.TCP_KEEPIDLE, max(1, int(seconds / 2))),
        (socket.TCP_KEEPINTVL, interval),
        (socket.TCP_KEEPCNT, _PROBES),
    ):
        listener.setsockopt(socket.IPPROTO_TCP, option, value)


def _allow_descriptors() -> None:
    """Allow as many connections as the system lets this process have; 1,024 is a common start."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(most, _MOST_DESCRIPTORS)
    if allowed < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def serve(settings: Settings, heartbeat: int = -1, listener: socket.socket | None = None) -> int:
    """Serve in this process until a signal; return the exit status.

    Args:
        heartbeat: descriptor of a pipe; who reads it hears each second that all is well. When
            nobody reads it any more this process ends, as at a signal.
        listener: listens already, for the processes before and after this one.
    """
    log_to_stderr(is_verbose=settings.is_verbose)
    certificate = certificate_of(settings.tls_certificate, settings.tls_key)
    _allow_descriptors()
    if listener is None:
        listener = listen(settings.host, settings.port, is_shared=settings.processes > 1)
    set_client_timeout(listener, settings.client_seconds)
    front_end = FrontEnd(settings)
    config = uvicorn.Config(
        front_end,
        loop="uvloop",
        http=bounded_protocol(
            head_seconds=settings.client_seconds, quiet_seconds=settings.keep_alive_seconds
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=True,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        h11_max_incomplete_event_size=None,
        callback_notify=certificate.renew if certificate else None,
        timeout_notify=_LOOK_SECONDS,
    )
    server = _Server(config, front_end, certificate, heartbeat)
    spare_collections()
    server.run(sockets=[listener])
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Speaks TLS with bounds, and exits cleanly at a signal: uvicorn's own would raise it again."""

    def __init__(
        self,
        config: uvicorn.Config,
        front_end: FrontEnd,
        certificate: Certificate | None,
        heartbeat: int,
    ) -> None:
        super().__init__(config)
        self._front_end, self._certificate = front_end, certificate
        self._heartbeat = heartbeat
        self._listeners: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._exits = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._listeners = sockets or []
        loop.add_signal_handler(signal.SIGUSR1, self._front_end.drain)
        loop.add_signal_handler(signal.SIGUSR2, self._leave)
        self._bounding = asyncio.create_task(self._bound_unread())
        if self._heartbeat >= 0:
            os.set_blocking(self._heartbeat, False)
            self._beating = asyncio.create_task(self._beat())
        if self._certificate is None:
            await super().startup(sockets)
        else:
            await self._startup_tls(self._certificate)

    async def main_loop(self) -> None:
        """Renew the date of responses each second until this is to exit.

        uvicorn's own loop wakes ten times a second to look whether it is.
        """
        while not await self.on_tick(0):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._exits.wait(), _LOOK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Exit soon; called amid anything else."""
        super().handle_exit(sig, frame)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._exits.set)

    async def _startup_tls(self, certificate: Certificate) -> None:
        """Listen; uvicorn would let a handshake take a minute."""
        await super().startup([])
        protocol: Any = self.config.http_protocol_class
        connect = partial(protocol, self.config, self.server_state, self.lifespan.state)
        for each in self._listeners:
            server = await asyncio.get_running_loop().create_server(
                connect,
                sock=each,
                backlog=BACKLOG,
                ssl=certificate.context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
            self.servers.append(server)

    def _leave(self) -> None:
        """Accept no connections: the next front end does. Exit when all requests are answered.

        Requests may be on their way on idle ones, so these are not closed at once.
        """
        _log.info("SIGUSR2: this front end finishes its requests, and the next one is started")
        self._front_end.leave()
        for server in self.servers:
            server.close()
        for each in self._listeners:
            each.close()
        if self._heartbeat >= 0:
            self._tell(LEAVES)
        self.config.timeout_graceful_shutdown = None
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._end)

    def _end(self) -> None:
        self.should_exit = True
        self._exits.set()

    async def _bound_unread(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                closed = end_unread(cast("set[BoundedProtocol]", self.server_state.connections))
            except Exception:  # noqa: BLE001  without this loop nothing is bounded
                _log.exception("looking for clients that do not read failed")
                continue
            if closed:
                _log.warning("%d connections were closed: their clients do not read", closed)

    async def _beat(self) -> None:
        while self._tell(b"."):  # noqa: ASYNC110  nobody else knows when it is due
            await asyncio.sleep(_BEAT_SECONDS)

    def _tell(self, byte: bytes) -> bool:
        """Write a byte for who watches this process; without it, stop and return false."""
        try:
            os.write(self._heartbeat, byte)
        except BlockingIOError:
            pass  # Who reads it stands still, and is not for us to watch.
        except BrokenPipeError:
            _log.warning("the process that started this front end has died: it stops")
            self._end()
            return False
        return True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        yield


def main() -> int:
    settings = decode(os.environ[VARIABLE])
    try:
        number, heartbeat = map(int, sys.argv[-2:])
        listener = socket.socket(fileno=number) if number >= 0 else None
        return serve(settings, heartbeat, listener)
    except LmiError as error:
        say(Redactor(os.environ)(str(error)))
        return 1


if __name__ == "__main__":
    sys.exit(main())
