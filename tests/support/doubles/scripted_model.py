"""A front end over the endpoint of a model that says what a test wants, and dies when it wants."""

import asyncio
import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from lmi_backend.endpoint.address import endpoint_folder
from lmi_backend.engine_config import Context, ModelInfo
from lmi_backend.files import private_folder
from lmi_backend.front_end_settings import Settings
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.frontend.http.protocol import bounded_protocol
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, encode
from lmi_backend.ipc.messages import NOT_BUFFERED
from tests.support.run.waiting import HANG_SECONDS, wait_for

NAME = "echo"
FRONT_END = "front end"
"""The name of its thread."""
OWN = "own"
"""A model with a handler of its user's."""
_PAUSE_SECONDS = 0.003
Order = msg.Submit | msg.SubmitHttp | msg.Manage
Script = Callable[[Order], Sequence[msg.ToClient | None]]
"""Returns what comes of a request; None: the model's process dies."""


def nothing(_: Order) -> Sequence[msg.ToClient | None]:
    """Die at once."""
    return [None]


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    data: bytes
    has_end: bool
    """Whether it came to its end."""


class ScriptedModel:
    """A model; there again at once when it has died."""

    def __init__(self, name: str) -> None:
        self.script: Script = nothing
        self.num_greeted = self.num_deaths = 0
        self.welcome = msg.Welcome(
            Context(is_custom=name == OWN, has_lora=True),
            ModelInfo(name=name, engine="vllm", version="1", max_model_len=100),
        )

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder: FrameDecoder[Any] = FrameDecoder(msg.FromClient, limit=LARGEST_FRAME)
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for message in decoder.feed(data):
                    if not await self._answer(message, writer):
                        return

    async def _answer(self, message: msg.FromClient, writer: asyncio.StreamWriter) -> bool:
        messages: Sequence[msg.ToClient | None] = ()
        if isinstance(message, msg.Hello):
            messages = [self.welcome]
            self.num_greeted += 1
        elif isinstance(message, Order):
            messages = self.script(message)
        elif isinstance(message, msg.Rejoin):
            messages = [msg.Failure(message.id, "http", NOT_BUFFERED, status=404)]
        elif isinstance(message, msg.Find):
            messages = [msg.Found()]
        for each in messages:
            if each is None:
                self.num_deaths += 1
                return False
            writer.write(encode([each]))
            # So that what follows does not come in the same turn of the front end's loop.
            await asyncio.sleep(_PAUSE_SECONDS)
        return True


class Scripted:
    """A front end with two models, in a thread of this process; `port` is the front end's."""

    def __init__(self, base: Path, **settings: Any) -> None:
        self.front_end = FrontEnd(Settings(base=base, **settings))
        self.models = {name: ScriptedModel(name) for name in (NAME, OWN)}
        self._base = base
        self.loop: asyncio.AbstractEventLoop | None = None
        """The front end's, while it runs."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        protocol = bounded_protocol(head_seconds=30, quiet_seconds=30)
        config = uvicorn.Config(
            self.front_end, http=protocol, ws="none", lifespan="on", log_config=None,
            access_log=False,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    @contextlib.contextmanager
    def run(self) -> Iterator["Scripted"]:
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), name=FRONT_END)
        thread.start()
        try:
            self.wait()
            yield self
        finally:
            self._server.should_exit = True
            thread.join()

    def wait(self) -> None:
        """Wait until the front end sees both models, as they are after one has died."""
        connected = sum(model.num_deaths + 1 for model in self.models.values())
        wait_for(lambda: sum(model.num_greeted for model in self.models.values()) == connected)
        wait_for(lambda: len(self.front_end.models.all()) == len(self.models))

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        folder = private_folder(endpoint_folder(self._base))
        async with contextlib.AsyncExitStack() as stack:
            for name, model in self.models.items():
                server = await asyncio.start_unix_server(model.take, folder / f"1-{name}.sock")
                await stack.enter_async_context(server)
            await self._server.serve(sockets=[self._socket])
        # The connections to the model end in a turn of the loop after those to it.
        await asyncio.sleep(_PAUSE_SECONDS)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answered:
        """Return what a client of HTTP/1.1 gets."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_SECONDS)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            try:
                return Answered(response.status, named, response.read(), has_end=True)
            except http.client.IncompleteRead as error:
                return Answered(response.status, named, error.partial, has_end=False)
        finally:
            connection.close()

    def ask_of_old(self, path: str, body: bytes, **headers: str) -> socket.socket:
        """Send a request as a client of HTTP/1.0, who knows no chunks; return its connection."""
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        lines += [f"host: localhost\r\ncontent-length: {len(body)}\r\n\r\n"]
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=HANG_SECONDS)
        connection.sendall(f"POST {path} HTTP/1.0\r\n{''.join(lines)}".encode() + body)
        return connection

    def ask_as_of_old(self, path: str, body: bytes, **headers: str) -> Answered:
        """Return what a client of HTTP/1.0 gets; a connection that is reset has no end."""
        received, has_end = bytearray(), True
        with self.ask_of_old(path, body, **headers) as connection:
            try:
                while part := connection.recv(1 << 16):
                    received += part
            except ConnectionResetError:
                has_end = False
        head, _, answer = bytes(received).partition(b"\r\n\r\n")
        return Answered(int(head.split()[1]), {}, answer, has_end)
