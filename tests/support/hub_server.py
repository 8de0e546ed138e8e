"""The part of the Hugging Face Hub's protocol that fetches a file, over HTTP on this machine."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_ERRORS = {
    "org/none": (404, "RepoNotFound"),
    "org/gated": (403, "GatedRepo"),
}


@contextmanager
def hub_server(files: dict[str, bytes]) -> Iterator[str]:
    """Serve the files of every model but some, at revision main; yield the Hub's URL."""
    handler = type("Handler", (_Handler,), {"files": files})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    files: dict[str, bytes]

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if "/tree/" in self.path:
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": _digest(data)}
                for name, data in self.files.items()
            ]
            self._answer(200, "", json.dumps(tree).encode())
            return
        model, _, rest = self.path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        if model in _ERRORS:
            self._answer(*_ERRORS[model], b"")
        elif revision not in ("main", COMMIT):
            self._answer(404, "RevisionNotFound", b"")
        elif name in self.files:
            self._answer(200, "", self.files[name])
        else:
            self._answer(404, "EntryNotFound", b"")

    def _answer(self, status: int, error: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", COMMIT)
        # Of each content its own, as the cache keeps contents under it.
        self.send_header("ETag", f'"{_digest(data)}"')
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
