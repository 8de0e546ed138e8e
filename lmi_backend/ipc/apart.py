"""Large bytes of a request, which travel as frames of their own before its message.

Inside a message they would be copied by each encoder and decoder. A copy of 60 MB holds the GIL for
35 ms, and all streams of the process wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from lmi_backend.errors import WorkerError
from lmi_backend.generation import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

APART_BYTES: Final = 1 << 18
"""Bytes of a body, or of all images of a request, from which on they travel apart."""


def detach(message: Any) -> tuple[Any, list[bytes]]:
    """Return a message without its large bytes, and these bytes."""
    request = getattr(message, "request", None)
    if isinstance(request, HttpRequest):
        if len(request.body) < APART_BYTES:
            return message, []
        return replace(message, request=replace(request, body=b"")), [request.body]
    requests = getattr(message, "requests", ())
    images = [image for each in requests for image in each.images]
    if sum(map(len, images)) < APART_BYTES:
        return message, []
    bare = tuple(replace(each, images=(b"",) * len(each.images)) for each in requests)
    return replace(message, requests=bare), images


def attach(message: Any, parts: Sequence[bytes]) -> Any:
    """Return the message that `detach` took the bytes from.

    Raises:
        WorkerError: the message has no place for so many.
    """
    request, requests = getattr(message, "request", None), getattr(message, "requests", ())
    if isinstance(request, HttpRequest) and len(parts) == 1:
        return replace(message, request=replace(request, body=parts[0]))
    if sum(len(each.images) for each in requests) != len(parts):
        raise WorkerError(f"{len(parts)} frames of bytes before a {type(message).__name__}")
    left = iter(parts)
    whole = (replace(each, images=tuple(next(left) for _ in each.images)) for each in requests)
    return replace(message, requests=tuple(whole))
