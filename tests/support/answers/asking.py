"""Requests to the front end's application, without a socket."""

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from lmi_backend.frontend.app import FrontEnd
from lmi_backend.frontend.http.protocol import CLIENT, Client


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    front_end: FrontEnd,
    path: str,
    headers: dict[str, str] | None = None,
    method: str = "GET",
    *,
    body: bytes = b"",
) -> Answer:
    given = {"host": "localhost:8080"} | (headers or {})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    transport = SimpleNamespace(get_protocol=SimpleNamespace)
    cycle = SimpleNamespace(more_body=False, disconnected=False, scope={}, transport=transport)
    scope = {
        "type": "http",
        "method": method,
        "path": path.partition("?")[0],
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": path.partition("?")[2].encode(),
        "headers": [(n.encode(), v.encode("latin-1")) for n, v in given.items()],
        CLIENT: Client(cast("Any", cycle)),
    }
    await front_end(scope, receive, send)
    lines = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    data = b"".join(message.get("body", b"") for message in sent)
    return Answer(sent[0]["status"], lines, data)
