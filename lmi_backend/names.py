"""The names that clients give and are given: their length, their characters, and headers.

Names travel with each response, stay as long as what they name, and end up in logs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lmi_backend.errors import RequestError

DEFAULT_MODEL_NAME: Final = "lmi"
"""What LMI calls a model to its clients."""
NAME_BYTES: Final = 512
"""Of a name that a client gives: a request's id, an adapter, a model, a user."""
HEADERS: Final = 128
"""Headers of one request; nginx and uvicorn end at fewer."""
HEADERS_BYTES: Final = 65_536
"""Of all headers of one request; HTTP servers end at 8 to 64 KiB."""
PATH_BYTES: Final = 4096
"""Of a path on this machine."""

# A token of RFC 9110, or one of HTTP/2's own.
_HEADER_NAME: Final = re.compile(r":?[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
# C0, C1, what begins a line or a paragraph, and surrogates, which no frame, path or log takes.
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def check_name(field: str, name: str, *, most: int = NAME_BYTES) -> None:
    """Refuse a name that is too long, or that could break a line.

    Raises:
        RequestError: it has more than `most` bytes of UTF-8, a control character or a surrogate.
    """
    # No character has less than a byte: a long name need not be written to be counted.
    size = len(name) if len(name) > most else len(name.encode("utf-8", "surrogatepass"))
    accepted = f"at most {most} bytes without control characters"
    if size > most:
        raise RequestError("is too long", field=field, value=name, accepted=accepted)
    if _CONTROLS.search(name):
        raise RequestError("has a control character", field=field, value=name, accepted=accepted)


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse headers that no HTTP server would take.

    Raises:
        RequestError: they are too many or too large, or one is none.
    """
    if len(headers) > HEADERS:
        accepted = f"at most {HEADERS}"
        raise RequestError(f"are {len(headers)}", field="headers", accepted=accepted)
    size = sum([len(name) + len(value.encode()) for name, value in headers.items()])
    if size > HEADERS_BYTES:
        accepted = f"at most {HEADERS_BYTES}"
        raise RequestError(f"have {size} bytes", field="headers", accepted=accepted)
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            accepted = "a token, as in RFC 9110"
            raise RequestError(
                "is not a header's name", field="headers", value=name, accepted=accepted
            )
        # A value may come back in an answer's headers, and in the engine's log.
        if not value.isprintable() and _CONTROLS.search(value.replace("\t", " ")):
            raise RequestError("has a control character", field=f"header {name}", value=value)
