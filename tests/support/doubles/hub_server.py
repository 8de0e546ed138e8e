"""The part of the Hugging Face Hub's protocol that fetches a file, over HTTP on this machine."""

import hashlib
import json
from contextlib import AbstractContextManager

from tests.support.doubles.http_double import Handler, running

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_ERRORS = {"org/none": (404, "RepoNotFound"), "org/gated": (403, "GatedRepo")}


def hub_server(files: dict[str, bytes]) -> AbstractContextManager[str]:
    """Serve the files of every model but some, at revision main; give the Hub's URL."""
    return running(_Handler, files=files)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Handler(Handler):
    files: dict[str, bytes]

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
        # The tag is of each content its own, as the cache keeps contents under it.
        why = {"x_error_code": error} if error else {}
        self.answer(status, data, x_repo_commit=COMMIT, etag=f'"{_digest(data)}"', **why)
