"""Uploads of files, which the engine's own server reads: which model they name."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from lmi_backend.errors import HttpError

_KIND: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(rf"{_KIND}\s*;.*?boundary=\"?([^\";,\s]{{1,70}})", re.IGNORECASE)
_NAME: Final = re.compile(rb"\bname=\"?model\"?(?:[;\s]|$)", re.IGNORECASE)
_FILE: Final = b"filename"
_MOST: Final = 1 << 16
"""Bytes of all fields but files: a server reads them on its only event loop."""
_PART: Final = 64
"""Bytes that a field counts besides its own."""


def model_in_upload(data: bytes, content_type: str) -> str:
    """Return the name of the model in an upload; empty if it names none.

    Raises:
        HttpError: it is of another type (400), or its fields are too long (413).
    """
    if (found := _BOUNDARY.match(content_type)) is None:
        text = f"content-type {content_type[:_MOST]!r}; accepted: {_KIND} with a boundary"
        raise HttpError(HTTPStatus.BAD_REQUEST, text)
    mark = b"--" + found[1].encode("latin-1", "replace")
    name, size, begin = b"", 0, data.find(mark)
    while begin >= 0:
        begin += len(mark)
        end = data.find(mark, begin)
        head_end = data.find(b"\r\n\r\n", begin, end if end >= 0 else len(data))
        head = data[begin:head_end] if head_end >= 0 else b""
        size += _PART + len(head)
        if end >= 0 and _FILE not in head.lower():
            size += end - begin
            if _NAME.search(head):
                name = data[head_end + 4 : min(end, head_end + _MOST)].strip()
        if size > _MOST:
            text = f"the fields besides files have {size} bytes; accepted: at most {_MOST}"
            raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        begin = end
    return name.decode("utf-8", "replace")
