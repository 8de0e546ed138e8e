"""A proxy that cuts connections in the middle of an answer, and a client that comes back."""

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.run.waiting import HANG_SECONDS

LAST_ID = "last-event-id"


class CuttingProxy:
    """Passes bytes on; of each answer so many as a test says, then it closes the connection.

    Args:
        server: port of the server behind it.
    """

    def __init__(self, server: int) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.cuts: dict[bytes, int] = {}
        """Bytes of the answer to the next request that has such a line; one of others is whole."""
        self.passed = 0
        """Bytes of the latest answer."""

    @contextlib.contextmanager
    def run(self) -> Iterator["CuttingProxy"]:
        thread = threading.Thread(target=self._accept)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        """Pass one request of a connection on, and its answer back."""
        address, gone = ("127.0.0.1", self._server), contextlib.suppress(OSError)
        # The server may be killed at any time.
        with client, gone, socket.create_connection(address) as server:
            request = _request(client)
            marks = [mark for mark in list(self.cuts) if mark in request]
            most = self.cuts.pop(marks[0]) if marks else 1 << 40
            server.sendall(request)
            passed = 0
            while passed < most and (data := server.recv(min(most - passed, 1 << 16))):
                self.passed = passed = passed + len(data)
                client.sendall(data)


def _request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(each[15:]) for each in lines if each.startswith(b"content-length:"))
    while len(body) < length:
        body += (part := client.recv(1 << 16))
        assert part
    return head + b"\r\n\r\n" + body


class Stream(NamedTuple):
    """What a client that comes back has got."""

    events: list[bytes]
    """Without their ids."""
    ids: list[str]
    connections: int


def follow(port: int, path: str, body: bytes, pause: float = 0, **headers: str) -> Stream:
    """Return a whole stream; where its connection breaks, reconnect for the rest after a pause."""
    events: list[bytes] = []
    ids: list[str] = []
    for connections in range(1, 100):
        time.sleep(pause if connections > 1 else 0)
        back = {LAST_ID: ids[-1]} if ids else {}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
        try:
            connection.request("POST", path, body, headers | back | {"connection": "close"})
            response = connection.getresponse()
            assert response.status == http.HTTPStatus.OK, response.read()
            # http.client takes a head that was cut for a whole one.
            if not response.chunked:
                continue
            _take(response, events, ids)
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
        return Stream(events, ids, connections)
    raise AssertionError(connections)


def _take(response: http.client.HTTPResponse, events: list[bytes], ids: list[str]) -> None:
    """Take the events of a response as they come, as the standard says: whole ones only."""
    rest = b""
    while part := response.read1(1 << 16):
        *blocks, rest = (rest + part).split(b"\n\n")
        for block in blocks:
            lines = block.split(b"\n")
            ids += [line[4:].decode() for line in lines if line.startswith(b"id: ")]
            events.append(b"\n".join(line for line in lines if line[:3] not in (b"id:", b": p")))
