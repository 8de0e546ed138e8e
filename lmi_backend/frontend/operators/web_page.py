"""The page for browsers: files from memory, which may run nothing but themselves."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import HttpError

if TYPE_CHECKING:
    from lmi_backend.frontend.http.access import Access
    from lmi_backend.frontend.http.exchange import Exchange

_PAGES: Final = {"/": "index.html", "/docs": "docs.html"}
PATHS: Final = (*_PAGES, "/page", "/page/{file:path}")
_FOLDER: Final = Path(__file__).parent / "page"
_POLICY: Final = "; ".join(
    (
        "default-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
        # Text becomes HTML through DOMPurify alone.
        "object-src 'none'", "require-trusted-types-for 'script'", "trusted-types dompurify",
    )
)  # fmt: skip
_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True)
class _File:
    data: bytes
    kind: str
    tag: str


class WebPage:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._files = {
            path.relative_to(_FOLDER).as_posix(): _read(path)
            for path in _FOLDER.rglob("*")
            if path.is_file()
        }

    async def show(self, exchange: Exchange) -> None:
        """Answer `GET /`, `GET /docs` and `GET /page/…`.

        Raises:
            HttpError: the host is not this server's (403), or there is no such file (404).
        """
        self._access.check_host(exchange)
        if exchange.raw_path.endswith("/docs/"):
            # The page names its files from the folder above.
            await exchange.respond(HTTPStatus.PERMANENT_REDIRECT, b"", {"location": "../docs"})
            return
        file = self._files.get(exchange.parameters.get("file") or _PAGES.get(exchange.path, ""))
        if file is None:
            raise HttpError(HTTPStatus.NOT_FOUND, f"{exchange.path[:200]!r} is not served")
        headers = _HEADERS | {"etag": file.tag}
        tags = exchange.headers.get("if-none-match", "")
        if file.tag in (tag.strip().removeprefix("W/") for tag in tags.split(",")):
            await exchange.start(HTTPStatus.NOT_MODIFIED, headers)
            await exchange.write(b"", is_last=True)
            return
        await exchange.respond(200, file.data, headers | {"content-type": file.kind})


def _read(path: Path) -> _File:
    data = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "text/plain"
    if path.suffix in (".js", ".mjs"):
        # What the system's own table says of them differs.
        kind = "text/javascript"
    text = "" if kind.startswith("image/") else "; charset=utf-8"
    return _File(data, kind + text, f'"{hashlib.sha256(data).hexdigest()[:20]}"')
