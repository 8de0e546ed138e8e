"""Write vectors as vLLM's server writes them into JSON, without Python's encoder.

Python's own takes 0.4 us a number, msgspec's 0.03. Both write the fewest digits that tell a number;
they differ in which numbers have an exponent.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_encode: Final = msgspec.json.encode
_SMALL: Final = (b"0.0000", b"-0.0000")
"""How numbers begin that have an exponent in Python's text and may have none in msgspec's."""


def as_numbers(vector: Any) -> bytes:
    """Return the text of a tensor of one dimension.

    Raises:
        ValueError: one of its values is no number.
    """
    text = _encode(vector.tolist())
    if b"n" in text:
        raise ValueError("a vector has a value that is no number")
    if _SMALL[0] in text or b"e" in text:
        return b"[" + b",".join(map(_as_python, text[1:-1].split(b","))) + b"]"
    return text


def _as_python(number: bytes) -> bytes:
    is_other = number.startswith(_SMALL) or b"e" in number
    return repr(float(number)).encode() if is_other else number


def as_base64(vector: Any) -> bytes:
    """Return the text of a tensor's bytes."""
    return b'"' + b2a_base64(vector.numpy().tobytes(), newline=False) + b'"'


WRITERS: Final[tuple[Callable[[Any], bytes], ...]] = (as_numbers, as_base64)
