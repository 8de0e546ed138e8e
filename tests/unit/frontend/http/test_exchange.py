"""What an exchange sends, and what it keeps to itself."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi_backend.clients.spec import EVENTS
from lmi_backend.errors import EngineError
from lmi_backend.frontend.http import exchange as exchange_module
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.frontend.http.protocol import CLIENT, Client
from tests.support.run.waiting import turns


class Connection:
    """A client's connection; `written` is what is written past ASGI."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.sent: list[Any] = []
        self.flow = SimpleNamespace(write_paused=False)
        self.cycle = SimpleNamespace(
            chunked_encoding=True, response_started=False, response_complete=False,
            disconnected=False, flow=self.flow, scope={},
            transport=SimpleNamespace(write=self.written.append),
        )  # fmt: skip
        scope = {"method": "POST", "path": "/", "headers": [], "http_version": "1.1"}
        scope[CLIENT] = Client(cast("Any", self.cycle))  # type: ignore[assignment]
        self.exchange = Exchange(scope, cast("Any", None), self._send)

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self.cycle.response_started = True


@pytest.mark.parametrize("reads", [True, False])
async def test_a_silent_stream_is_kept_open(
    monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    monkeypatch.setattr(exchange_module, "PING_SECONDS", 0.0)
    connection = Connection()
    connection.flow.write_paused = not reads
    await connection.exchange.start(200, {"content-type": EVENTS})
    await turns()
    await connection.exchange.write(b"", is_last=True)
    count = len(connection.written)
    await turns()
    # Not one after the end, and none for a client that does not read what came before.
    assert connection.written == [b"8\r\n: ping\n\n\r\n"] * count
    assert bool(count) == reads
    connection.exchange.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x", "a\nb"),
        ("x", "a\0"),
        ("x", "\x7f"),
        ("x\r\ny", "a"),
        ("", "a"),
        ("é", "a"),
        ("x:", "a"),
    ],
)
async def test_a_header_that_http_does_not_allow_fails_before_the_response_begins(
    name: str, value: str
) -> None:
    connection = Connection()
    with pytest.raises(EngineError, match="HTTP does not allow it"):
        await connection.exchange.start(200, {name: value})
    assert (connection.sent, connection.exchange.status) == ([], 0)
    await connection.exchange.respond(500, b"", {"x": "a\tb — é"})
    assert connection.sent[0]["headers"][0] == (b"x", b"a\tb ? \xe9")
