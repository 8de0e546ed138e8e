"""The headers of a response, which a model or a user's code may have made."""

from __future__ import annotations

import re
from typing import Final

from lmi_backend.errors import EngineError
from lmi_backend.printable import printable

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


def line_of(name: str, value: str) -> tuple[bytes, bytes]:
    """Return a header as ASGI has it.

    Raises:
        EngineError: HTTP does not allow it.
    """
    if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
        text = f"the answer has the header {printable(name)!r} with {printable(value)!r}"
        raise EngineError(f"{text}: HTTP does not allow it")
    return name.encode(), value.encode("latin-1", "replace")
