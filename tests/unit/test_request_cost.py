"""What a request costs the front end before and after its stream, counted in calls of functions."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import uvicorn
import uvloop
from uvicorn.server import ServerState

from lmi_backend.engine_config import Context, ModelInfo
from lmi_backend.front_end_settings import Settings
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.frontend.connection import ModelConnection
from lmi_backend.frontend.http.protocol import bounded_protocol
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import encode
from lmi_backend.tokenization import pack
from tests.support.run.waiting import turns
from tests.unit.test_cost import Calls, Transport

MOST_CALLS: Final = 580
"""Of Python and C, 561 on CPython 3.11: a chat of two events."""
BODY: Final = json.dumps(
    {"model": "m", "messages": [{"role": "user", "content": "Count."}], "stream": True}
).encode()
REQUEST: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: */*\r\n"
    b"Accept-Encoding: gzip\r\nContent-Type: application/json\r\nUser-Agent: x\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
) + BODY
EVENTS: Final = {"content-type": "text/event-stream; charset=utf-8"}


class ClientTransport(Transport):
    """A client's socket, which has addresses."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 8080)}.get(name, default)

    def resume_reading(self) -> None:
        """Go on."""


def test_what_a_chat_costs_besides_the_middle_of_its_stream(tmp_path: Path) -> None:
    # The event loop that the front end runs on; Python's own would be most of the calls.
    counts = uvloop.run(_counts(FrontEnd(Settings(base=tmp_path))))
    assert counts[-1] <= MOST_CALLS, counts


async def _counts(application: FrontEnd) -> list[int]:
    """Return the calls of some chats, one after the other."""
    connection = ModelConnection(
        lambda welcome: application.models.enter(Path("m"), connection, welcome),
        lambda left: None,
        later=asyncio.get_running_loop().call_soon,
    )
    connection.connection_made(Transport())  # type: ignore[arg-type]
    model = ModelInfo(name="m", return_seconds=60.0, migration_limit=3)
    connection.data_received(encode([msg.Welcome(Context(), model)]))
    kind = bounded_protocol(head_seconds=60, quiet_seconds=65)
    config = uvicorn.Config(
        application, http=kind, lifespan="off", log_config=None, proxy_headers=False
    )
    config.load()
    client, transport = kind(config, ServerState(), {}), ClientTransport()
    client.connection_made(transport)  # type: ignore[arg-type]
    counts: list[int] = []
    for number in range(1, 4):
        first = HttpChunk(b'data: {"role": "a"}\n\n', False, 200, EVENTS, 1, 5, pack([7]))
        last = HttpChunk(b"data: [DONE]\n\n", True, 200, {}, 1, 5, pack([8]))
        frames = [encode([msg.Output(number, each)]) for each in (first, last)]
        calls = Calls()
        with calls.counted():
            client.data_received(REQUEST)
            await turns(4)
            for frame in frames:
                connection.data_received(frame)
                await turns(4)
        counts.append(calls.count)
    written = b"".join(transport.written)
    assert written.count(b"HTTP/1.1 200 OK") == written.count(b"data: [DONE]") == 3
    client.connection_lost(ConnectionResetError())
    return counts
