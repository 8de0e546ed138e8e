"""The events of one answer, for a client that reconnects and lacks some of them.

The events of a stream are much alike. Compressed together, each takes some twenty bytes.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from typing import Final, NamedTuple

_END: Final = b"\n\n"
_BLOCK_BYTES: Final = 8 << 10
"""Size of the events that are compressed together, about."""
_FAST: Final = 1
_ANSWER_BYTES: Final = 4096
"""Memory of an answer without its events, about."""
_OBJECT_BYTES: Final = 100
"""The same of a block, and of an event that is not compressed yet."""


class _Block(NamedTuple):
    before: int
    """Events before its first one."""
    data: bytes
    """Compressed."""


class KeptEvents:
    """Keeps events and their ids, and returns what follows one of them.

    Args:
        name: of the answer. An id is the name, a dot and the number of the event.
    """

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self._blocks: list[_Block] = []
        self._latest: list[bytes] = []
        self._latest_bytes = 0
        self._rest = bytearray()
        """The beginning of an event that is not complete."""
        self.count = 0
        self.size = _ANSWER_BYTES
        """Bytes of memory, about."""

    def add(self, data: bytes) -> None:
        """Add events, or a part of one. Comments are not kept."""
        seen = max(0, len(self._rest) - 1)
        self._rest += data
        if (end := self._rest.rfind(_END, seen)) < 0:
            return
        whole = bytes(self._rest[:end])
        del self._rest[: end + len(_END)]
        for event in whole.split(_END):
            if (text := event.lstrip(b"\n")) and not _is_comment(text):
                self._keep(text)

    def end(self) -> None:
        """Note that the stream is over."""
        self.add(_END)
        self.compress()

    def _keep(self, event: bytes) -> None:
        self._latest.append(event)
        self.count += 1
        self._latest_bytes += len(event)
        self.size += len(event) + _OBJECT_BYTES
        if self._latest_bytes >= _BLOCK_BYTES:
            self.compress()

    def compress(self) -> None:
        """Compress the latest events."""
        if not self._latest:
            return
        data = zlib.compress(_END.join(self._latest), _FAST)
        before = self.count - len(self._latest)
        self._blocks.append(_Block(before, data))
        self.size += len(data) + _OBJECT_BYTES
        self.size -= self._latest_bytes + _OBJECT_BYTES * len(self._latest)
        self._latest, self._latest_bytes = [], 0

    def shrink(self) -> bool:
        """Delete the older half of the compressed events; return whether there were any."""
        old = self._blocks[: (len(self._blocks) + 1) // 2]
        del self._blocks[: len(old)]
        self.size -= sum(len(each.data) + _OBJECT_BYTES for each in old)
        return bool(old)

    def all(self) -> tuple[list[bytes], bytes] | None:
        """Return the events, compressed, and the beginning of the next; None if some are gone."""
        self.compress()
        blocks = [block.data for block in self._blocks]
        return (blocks, bytes(self._rest)) if self._first == 0 else None

    def has(self, number: int) -> bool:
        """Tell whether all events after one are kept."""
        return self._first <= number <= self.count

    @property
    def _first(self) -> int:
        """Number of deleted events."""
        return self._blocks[0].before if self._blocks else self.count - len(self._latest)

    def after(self, number: int) -> tuple[bytes, int]:
        """Return events after one, with their ids, and the number of the last of them.

        They may be some of those that are kept, and are none only if no event follows.

        Args:
            number: of the event, from 1; 0 for all.

        Raises:
            LookupError: the event has not come, or what follows it was deleted.
        """
        if not self.has(number):
            raise LookupError(number)
        before = self.count - len(self._latest)
        if number >= before:
            events = self._latest[number - before :]
        else:
            place = bisect_right(self._blocks, number, key=lambda block: block.before) - 1
            block = self._blocks[place]
            events = zlib.decompress(block.data).split(_END)[number - block.before :]
        lines = (
            b"id: %b.%d\n%b\n\n" % (self._name, place, event)
            for place, event in enumerate(events, start=number + 1)
        )
        return b"".join(lines), number + len(events)


def _is_comment(event: bytes) -> bool:
    return event.startswith(b":") and all(line[:1] == b":" for line in event.split(b"\n"))
