"""The target of a request, as section 3.2 of RFC 9112 has it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import httptools

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVER: Final = b"*"
"""The target of a request about the server as a whole; OPTIONS only."""
_HOST: Final = b"host"
_END: Final = re.compile(rb"[/?]")
"""What follows the authority of a URL."""


def names_one_host(headers: Sequence[tuple[bytes, bytes]], version: str) -> bool:
    """Tell whether a request names its server once, as HTTP/1.1 demands."""
    named = [name for name, _ in headers].count(_HOST)
    return named == 1 or (not named and version != "1.1")


def target_of(method: bytes, target: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a target as the path and query that it means; `*` for the server as a whole.

    A client of a proxy writes a whole URL, and proxies may pass it on. Its host counts then, not
    that of `Host`.

    Args:
        method: of the request.
        target: as the client wrote it.
        headers: those of the request; `Host` becomes the URL's.

    Raises:
        ValueError: no server of HTTP has such a target.
        httptools.HttpParserInvalidURLError: it is no URL.
    """
    is_general = method == b"OPTIONS"
    if target.startswith(b"/") or method == b"CONNECT" or (is_general and target == SERVER):
        return target
    url = httptools.parse_url(target)
    scheme = (url.schema or b"").lower()
    if scheme not in (b"http", b"https") or url.userinfo is not None:
        raise ValueError(target)
    host = _END.split(target.partition(b"://")[2], maxsplit=1)[0]
    headers[:] = [*(each for each in headers if each[0] != _HOST), (_HOST, host)]
    if is_general and url.path is None and url.query is None:
        return SERVER
    return (url.path or b"/") + (b"" if url.query is None else b"?" + url.query)
