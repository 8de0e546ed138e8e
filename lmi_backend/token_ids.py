"""Token ids as bytes: small to keep, quick to append, and grouped as the engine gave them.

An id takes four bytes, little end first. The top bit marks the last id of a group, which is one
output of an engine. Groups that are appended to each other stay apart.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Final

ID_BYTES: Final = 4
_LAST: Final = 1 << 31
_TYPE: Final = "I"


def pack(ids: Sequence[int]) -> bytes:
    """Return a group of ids, each below 2^31, as bytes; nothing for none."""
    if len(ids) == 1:
        return (ids[0] | _LAST).to_bytes(ID_BYTES, "little")
    if not ids:
        return b""
    packed = array(_TYPE, ids)
    packed[-1] |= _LAST
    return _little(packed).tobytes()


def unpack(data: bytes) -> list[list[int]]:
    """Return the groups that were packed; the last one may have no end."""
    packed = array(_TYPE)
    packed.frombytes(data)
    groups: list[list[int]] = [[]]
    for number in _little(packed):
        groups[-1].append(number & ~_LAST)
        if number & _LAST:
            groups.append([])
    return groups if groups[-1] else groups[:-1]


def _little(packed: array[int]) -> array[int]:
    if sys.byteorder == "big":
        packed.byteswap()
    return packed
