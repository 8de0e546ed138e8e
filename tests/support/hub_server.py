"""The part of the Hugging Face Hub's protocol that fetches a file, over HTTP on this machine."""

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LARGE = 1 << 20
_PAUSE_SECONDS = 2.0
"""In the middle of a large file: long enough for others to ask for it meanwhile."""
_ERRORS = {
    "org/none": (404, "RepoNotFound"),
    "org/gated": (403, "GatedRepo"),
}


@contextmanager
def hub_server(files: dict[str, bytes], ranges: list[int] | None = None) -> Iterator[str]:
    """Serve the files of every model but some, at revision main; yield the Hub's URL.

    Args:
        files: content by name.
        ranges: gets where each request began that asked for the rest of a file.
    """
    ranges = [] if ranges is None else ranges
    handler = type("Handler", (_Handler,), {"files": files, "ranges": ranges})
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
    ranges: list[int]
    """Where each request began that asked for the rest of a file."""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if "/revision/" in self.path:
            names = [{"rfilename": name} for name in self.files]
            about = {"id": self.path.split("/")[3], "sha": COMMIT, "siblings": names}
            self._answer(200, "", json.dumps(about).encode())
            return
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
        whole = data
        begin = self.headers.get("Range", "").removeprefix("bytes=").partition("-")[0]
        if begin and self.command == "GET":
            self.ranges.append(int(begin))
            status, data = 206, data[int(begin) :]
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", COMMIT)
        # Of each content its own, as the cache keeps contents under it.
        self.send_header("ETag", f'"{_digest(whole)}"')
        if error:
            self.send_header("X-Error-Code", error)
        self.end_headers()
        if self.command != "HEAD":
            half = len(data) // 2
            self.wfile.write(data[:half])
            if len(data) > _LARGE:
                time.sleep(_PAUSE_SECONDS)
            self.wfile.write(data[half:])
