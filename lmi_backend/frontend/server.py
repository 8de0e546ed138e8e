"""Run the front end: one process, or several that share a port."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import queue
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from logging.handlers import QueueHandler, QueueListener
from typing import TYPE_CHECKING, Final

import uvicorn

from lmi_backend.errors import ConfigurationError
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.frontend.protocol import BoundedProtocol
from lmi_backend.garbage import spare_collections

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lmi_backend.frontend.app import Settings
    from lmi_backend.frontend.certificate import Certificate

_LOOK_SECONDS: Final = 1
_BACKLOG: Final = 2048
_LOG_LINES: Final = 10_000
_DRAIN_SECONDS: Final = 30
_HANDSHAKE_SECONDS: Final = 10.0
_KEEP_ALIVE_SECONDS: Final = 65
"""Longer than the 60 s of AWS's load balancers, which must be the ones to close."""
_log = logging.getLogger(__name__)


def listen(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: address, or a name of this machine.
        port: of TCP.
        is_shared: whether other processes listen at the same port; else it must be free.

    Raises:
        ConfigurationError: the address cannot be had.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        message = f"the front end cannot listen on {host}:{port}: {error}"
        raise ConfigurationError(message) from error
    return listener


def log_from_a_thread() -> None:
    """Log to standard error without waiting for who reads it; lines that do not fit are lost."""
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_LOG_LINES)
    to_stderr = logging.StreamHandler(sys.stderr)
    to_stderr.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    listener = QueueListener(lines, to_stderr)
    listener.start()
    logging.basicConfig(level=logging.INFO, handlers=[_DroppingHandler(lines)])
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    atexit.register(listener.stop)


class _DroppingHandler(QueueHandler):
    """Drops what a full queue does not take."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Say nothing: there is nowhere to say it."""


def serve(settings: Settings, host: str, port: int, certificate: Certificate | None) -> int:
    """Serve until a signal, over TLS if there is a certificate; return the exit status."""
    listener = listen(host, port, is_shared=settings.processes > 1)
    config = uvicorn.Config(
        FrontEnd(settings),
        loop="uvloop",
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=True,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        h11_max_incomplete_event_size=None,
        callback_notify=certificate.renew if certificate else None,
        timeout_notify=_LOOK_SECONDS,
    )
    server = _Server(config, certificate)
    spare_collections()
    server.run(sockets=[listener])
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Speaks TLS with bounds; ends well at a signal: uvicorn's own would end by it once more."""

    def __init__(self, config: uvicorn.Config, certificate: Certificate | None) -> None:
        super().__init__(config)
        self._certificate = certificate

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; uvicorn would let a handshake take a minute."""
        if self._certificate is None:
            await super().startup(sockets)
            return
        await super().startup([])
        connect = partial(BoundedProtocol, self.config, self.server_state, self.lifespan.state)
        for each in sockets or ():
            server = await asyncio.get_running_loop().create_server(
                connect,
                sock=each,
                backlog=_BACKLOG,
                ssl=self._certificate.context,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
            self.servers.append(server)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.handle_exit)
        yield


def serve_many(argv: Sequence[str], processes: int) -> int:
    """Run some processes of this command until a signal; one that ends is started again."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    command = [
        sys.executable,
        "-m",
        "lmi_backend.cli.main",
        *argv,
        f"--share={processes}",
        "--frontend-processes=1",
    ]
    start = partial(subprocess.Popen, command)
    running = [start() for _ in range(processes)]
    while not stop.wait(_LOOK_SECONDS):
        ended = [index for index, process in enumerate(running) if process.poll() is not None]
        for index in ended:
            _log.error("a process of the front end ended and is started again")
            running[index] = start()
    for process in running:
        process.terminate()
    for process in running:
        process.wait(_DRAIN_SECONDS + 5)
    return 0
