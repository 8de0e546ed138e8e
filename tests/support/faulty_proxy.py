"""A proxy that plants a fault in the answers of a real server: the one that a header names."""

import contextlib
import http.client
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.http_double import Handler, running
from tests.support.waiting import HANG_SECONDS

HEADER = "x-plant"


@dataclass
class Planted:
    """An answer, to be changed."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_cut: bool = False
    """Whether the connection is closed before the end of the body."""

    @property
    def events(self) -> list[bytes]:
        """The server-sent events of the body."""
        return [each for each in self.body.split(b"\n\n") if each.strip()]

    @events.setter
    def events(self, events: list[bytes]) -> None:
        self.body = b"".join(each + b"\n\n" for each in events)


Plant = Callable[[Planted], None]


def faulty_proxy(server: str, faults: dict[str, Plant]) -> contextlib.AbstractContextManager[str]:
    """Run the proxy in front of a server, HOST:PORT, until the end of a block; give its URL."""
    return running(_Handler, upstream=server, plants=faults)


class _Handler(Handler):
    upstream: str
    plants: dict[str, Plant]

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        connection = http.client.HTTPConnection(self.upstream, timeout=HANG_SECONDS)
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body, dict(self.headers))
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            answer = Planted(response.status, headers, response.read())
        self.plants.get(self.headers.get(HEADER, ""), lambda _: None)(answer)
        self._write(answer)

    do_POST = do_GET

    def _write(self, answer: Planted) -> None:
        for name in ("content-length", "transfer-encoding", "connection", "date", "server"):
            answer.headers.pop(name, None)
        lines = [f"HTTP/1.1 {answer.status} Planted", *map(": ".join, answer.headers.items())]
        lines += [f"content-length: {len(answer.body)}", "connection: close"]
        body = answer.body[: len(answer.body) // 2] if answer.is_cut else answer.body
        self.wfile.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)


def in_json(change: Callable[[Any], Any]) -> Plant:
    """Change the JSON of a whole answer."""

    def plant(answer: Planted) -> None:
        read = json.loads(answer.body)
        changed = change(read)
        answer.body = json.dumps(read if changed is None else changed).encode()

    return plant


def in_events(change: Callable[[list[bytes]], Any]) -> Plant:
    """Change the list of the events of a stream."""

    def plant(answer: Planted) -> None:
        events = answer.events
        changed = change(events)
        answer.events = events if changed is None else changed

    return plant


def in_event(place: int, change: Callable[[Any], Any]) -> Plant:
    """Change the JSON of one event of a stream."""

    def plant(answer: Planted) -> None:
        events = answer.events
        read = json.loads(events[place].removeprefix(b"data:"))
        change(read)
        events[place] = b"data: " + json.dumps(read).encode()
        answer.events = events

    return plant
