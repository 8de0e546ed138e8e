"""What names a response and its parts in the events of a stream.

An engine that makes the events again draws new ids and takes another time. Its client must see the
first ones, so these are put back in their places.
"""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 256
"""Names that are kept of a stream; a response has two, and one or two for each of its items."""
_NAME: Final = re.compile(
    rb'"(?:id|item_id|call_id)": ?("[\w.:-]{1,128}")|("created_at": ?[0-9.]+)'
)


class EventNames:
    """The names in the events of a stream, each once, in the order in which they came.

    Args:
        text: those of its beginning, as `text` returned them.
    """

    __slots__ = ("_found", "_rest")

    def __init__(self, text: bytes = b"") -> None:
        self._found: dict[bytes, None] = dict.fromkeys(text.splitlines())
        self._rest = b""
        """Of a line whose end has not come."""

    def add(self, data: bytes) -> None:
        """Take the names from the next bytes of a stream, while they are few."""
        if not self.are_few:
            return
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        for quoted, time in _NAME.findall(data, 0, end):
            self._found[quoted or time] = None

    @property
    def are_few(self) -> bool:
        """Whether there are no more of them than may be kept."""
        return len(self._found) <= MOST

    @property
    def text(self) -> bytes:
        return b"\n".join(self._found)

    def put_back(self, before: EventNames, data: bytes) -> bytes:
        for own, first in zip(self._found, before._found, strict=False):
            if own != first:
                data = data.replace(own, first)
        return data

    def covers(self, before: EventNames) -> bool:
        """Tell whether each name of `before` has one here."""
        return len(self._found) >= len(before._found)
