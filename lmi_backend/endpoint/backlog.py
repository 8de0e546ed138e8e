"""What a client of an endpoint has not been sent yet, while it does not keep up."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, chunks_of
from lmi_backend.ipc.rejoining import Rejoined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

UNREAD_BYTES: Final = 8 << 20
"""Bytes of one answer that nobody reads, in each process that it passes; beyond them it fails."""
UNREAD_BYTES_IN_ALL: Final = 512 << 20
"""Bytes of all answers that the clients of an endpoint do not read; beyond them the largest
fail."""
UNREAD: Final = "the client does not read its answer"
_FRAME_BYTES: Final = 1 << 20
# To end one answer at a time would look through all messages each time.
_LEFT_SHARE: Final = 0.75


class Backlog:
    """Messages in their order; while they are counted, how much waits of each request.

    Of a request that is dropped no chunk leaves any more.
    """

    def __init__(self) -> None:
        self.messages: list[msg.ToClient] = []
        self._count_nothing()

    def _count_nothing(self) -> None:
        self._sizes: defaultdict[int, int] = defaultdict(int)
        self._total = 0
        self._dropped: set[int] = set()
        self._dropped_bytes = 0

    @property
    def memory(self) -> int:
        """Bytes of what was counted and waits, about."""
        return self._total + self._dropped_bytes

    def count(self, messages: Iterable[msg.ToClient], most: int) -> set[int]:
        """Count messages that were added; return the requests that too much waits of.

        A single chunk is never too much, however large it is: an answer that comes whole is one.

        Args:
            most: bytes of all requests.
        """
        found: set[int] = set()
        for message in messages:
            for request_id, size in _sizes(message):
                if self._sizes[request_id] > UNREAD_BYTES:
                    found.add(request_id)
                self._sizes[request_id] += size
                self._total += size
        return found if self._total <= most else found | self._largest(most)

    def _largest(self, most: int) -> set[int]:
        found: set[int] = set()
        left = self._total
        for request_id in sorted(self._sizes, key=self._sizes.__getitem__, reverse=True):
            if left <= most * _LEFT_SHARE:
                break
            found.add(request_id)
            left -= self._sizes[request_id]
        return found

    def drop(self, requests: AbstractSet[int]) -> None:
        """Forget the chunks of some requests."""
        self._dropped |= requests
        dropped = sum(self._sizes.pop(request_id, 0) for request_id in requests)
        self._dropped_bytes += dropped
        self._total -= dropped
        # Else they are left out when their turn comes: to take them out looks at all that waits.
        if self._dropped_bytes > self._total:
            self.messages = _without(self.messages, self._dropped)
            self._dropped, self._dropped_bytes = set(), 0

    def next_frame(self) -> list[msg.ToClient]:
        """Take the first messages, which leave together.

        They are so few that what is encoded of a long backlog, and decoded of it, is never all.
        """
        frame: list[msg.ToClient] = []
        while self.messages and not frame:
            first = self.messages[: _frame_length(self.messages)]
            del self.messages[: len(first)]
            self._forget(first)
            frame = _without(first, self._dropped)
        if not self.messages:
            self._count_nothing()
        return frame

    def _forget(self, messages: Iterable[msg.ToClient]) -> None:
        """Count messages no longer."""
        for message in messages:
            for request_id, size in _sizes(message):
                if request_id in self._dropped:
                    self._dropped_bytes -= size
                    continue
                self._total -= size
                self._sizes[request_id] -= size
                if not self._sizes[request_id]:
                    del self._sizes[request_id]


def _frame_length(messages: Sequence[msg.ToClient]) -> int:
    size = 0
    for number, message in enumerate(messages, 1):
        size += sum(each for _, each in _sizes(message))
        if size >= _FRAME_BYTES:
            return number
    return len(messages)


def _without(messages: Sequence[msg.ToClient], requests: AbstractSet[int]) -> list[msg.ToClient]:
    """Return messages, but for the chunks of some requests."""
    if not requests:
        return list(messages)
    kept: list[msg.ToClient] = []
    for message in messages:
        if isinstance(message, msg.Events):
            for row in (each for each in chunks_of(message) if each[0] not in requests):
                append_event(kept, *row)
        elif (
            not isinstance(message, msg.Output | msg.HttpOutput | Rejoined)
            or message.id not in requests
        ):
            kept.append(message)
    return kept


def _sizes(message: msg.ToClient) -> Iterator[tuple[int, int]]:
    """Yield request and bytes of each chunk in a message."""
    if isinstance(message, msg.Events):
        yield from zip(message.ids, map(len, message.data), strict=True)
    elif isinstance(message, msg.Output | msg.HttpOutput):
        yield message.id, message.chunk.memory
    elif isinstance(message, Rejoined):
        before = message.before.memory if message.before else 0
        yield message.id, before + sum(map(len, message.blocks))
