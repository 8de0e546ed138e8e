"""What an exchange sends, and what it keeps to itself."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi_backend.errors import EngineError
from lmi_backend.frontend import exchange as exchange_module
from lmi_backend.frontend.client import CLIENT, Client
from lmi_backend.frontend.exchange import EVENTS, HELD_BYTES, Exchange


class Connection:
    """A client's connection; `written` is what is written past ASGI."""

    def __init__(self, version: str = "1.1") -> None:
        self.written: list[bytes] = []
        self.sent: list[Any] = []
        self.flow = SimpleNamespace(write_paused=False)
        cycle = SimpleNamespace(
            chunked_encoding=True, response_started=False, response_complete=False,
            disconnected=False, flow=self.flow, scope={},
            transport=SimpleNamespace(write=self.written.append),
        )  # fmt: skip
        scope = {"method": "POST", "path": "/", "headers": [], "http_version": version}
        scope[CLIENT] = Client(cast("Any", cycle))  # type: ignore[assignment]
        self.exchange = Exchange(scope, cast("Any", None), self._send)

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


async def test_an_answer_to_an_old_client_is_held_up_to_a_bound() -> None:
    connection = Connection("1.0")
    await connection.exchange.start(200, {"content-type": EVENTS})
    await connection.exchange.write(b"x" * HELD_BYTES)
    with pytest.raises(EngineError, match=r"use HTTP/1\.1"):
        await connection.exchange.write(b"x")
    # Its client can be told so.
    assert not connection.exchange.has_begun
    await connection.exchange.respond(500, b"why", {})
    assert [message.get("status") for message in connection.sent] == [500, None]
    assert connection.sent[1]["body"] == b"why"
    connection.exchange.close()


@pytest.mark.parametrize("reads", [True, False])
async def test_a_silent_stream_is_kept_open(
    monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    monkeypatch.setattr(exchange_module, "PING_SECONDS", 0.01)
    connection = Connection()
    connection.flow.write_paused = not reads
    await connection.exchange.start(200, {"content-type": EVENTS})
    await asyncio.sleep(0.1)
    await connection.exchange.write(b"", is_last=True)
    count = len(connection.written)
    await asyncio.sleep(0.05)
    # Not one after the end, and none for a client that does not read what came before.
    assert connection.written == [b"8\r\n: ping\n\n\r\n"] * count
    assert bool(count) == reads
    connection.exchange.close()
