"""An HTTP server on this machine whose answers a handler of the test's own writes."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Logs nothing; a HEAD is a GET."""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()  # type: ignore[attr-defined]

    def answer(self, status: int, body: str | bytes = b"", **headers: str) -> None:
        """Answer with a body; names of headers have hyphens for underlines."""
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {"content_length": f"{len(data)}", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def running(
    handler: type[Handler], tls: ssl.SSLContext | None = None, **members: Any
) -> Iterator[str]:
    """Serve until the end of the block; yield the URL. Members are those of the handler's class."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), members))
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
