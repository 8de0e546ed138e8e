"""Write vectors as vLLM's server writes them into JSON, without Python's encoder.

Python's own takes 0.4 us a number, this 0.1. Both write the fewest digits that tell a number;
they differ in which numbers have an exponent.
"""

from __future__ import annotations

from binascii import b2a_base64
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

_encode: Final = msgspec.json.encode
_SMALL: Final = b"0.0000"
"""How numbers begin that have an exponent in Python's text and may have none in msgspec's."""
_LEAST: Final = 1e-4
_MOST: Final = 1e16
"""Between these, numbers have no exponent in either."""


def as_numbers(vector: Any) -> bytes:
    """Return the text of a tensor of one dimension.

    Raises:
        ValueError: one of its values is no number.
    """
    numbers = vector.tolist()
    text = _encode(numbers)
    if b"n" in text:
        raise ValueError("a vector has a value that is no number")
    if _SMALL not in text and b"e" not in text:
        return text
    texts = text[1:-1].split(b",")
    for place, each in enumerate(numbers):
        if not (_LEAST <= each < _MOST or -_MOST < each <= -_LEAST):
            texts[place] = repr(each).encode()
    return b"[" + b",".join(texts) + b"]"


def as_base64(vector: Any) -> bytes:
    """Return the text of a tensor's bytes."""
    return b'"' + b2a_base64(vector.numpy().tobytes(), newline=False) + b'"'


WRITERS: Final[tuple[Callable[[Any], bytes], ...]] = (as_numbers, as_base64)
