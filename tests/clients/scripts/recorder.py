"""Stands before the server: what a program sends, what it is answered, and whom else it asks."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_PART = 1 << 16
_FRAMING = ("connection", "content-length", "transfer-encoding")


class Recorder:
    """The server's address for a program, and its proxy for all others, which are refused."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.exchanges: list[dict[str, Any]] = []
        """Of each request its method, its path, its body and the status of its answer."""
        self.others: list[str] = []
        """Whom the program would ask if it could."""
        self.url = ""

    @contextlib.contextmanager
    def running(self) -> Iterator["Recorder"]:
        """Serve until the block ends."""
        handler = type("Handler", (_Handler,), {"recorder": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def environment(self) -> dict[str, str]:
        """Return the variables that make this the way to everybody."""
        ways = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        own = ("no_proxy", "NO_PROXY")
        return dict.fromkeys(ways, self.url) | dict.fromkeys(own, "127.0.0.1,localhost")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    recorder: Recorder

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_CONNECT(self) -> None:
        self._refuse(self.path)

    def do_GET(self) -> None:
        self._pass_on()

    do_POST = do_HEAD = do_GET

    def _refuse(self, host: str) -> None:
        self.recorder.others.append(host)
        self.close_connection = True
        self.send_response(403)
        self.send_header("content-length", "0")
        self.end_headers()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if not self.path.startswith("/"):
            self._refuse(urlsplit(self.path).netloc)
            return
        upstream = http.client.HTTPConnection(self.recorder.upstream, timeout=240)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _FRAMING}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        self.recorder.exchanges.append(
            {
                "method": self.command,
                "path": self.path.partition("?")[0],
                "body": _read(body),
                "status": answer.status,
            }
        )
        # Without a length an answer ends with its connection.
        self.close_connection = True
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _FRAMING:
                self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        while part := answer.read1(_PART):
            self.wfile.write(part)
            self.wfile.flush()
        upstream.close()


def _read(body: bytes) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(body)
    return f"{len(body)} bytes that are no JSON" if body else None
