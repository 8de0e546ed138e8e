"""What a client of an endpoint has not been sent yet, while it does not keep up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, outputs_of
from lmi_backend.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

UNREAD_BYTES: Final = 8 << 20
"""Bytes of one answer, in each process that it passes, for a reader that takes nothing; beyond them
the answer fails."""
STILL_SECONDS: Final = 1.0
"""Time for which such a reader has taken nothing. More would come of a fast stream meanwhile; a
whole answer has come by then."""
UNREAD_BYTES_IN_ALL: Final = 512 << 20
"""Bytes of all answers that the clients of an endpoint have not read; beyond them the largest fail
of the key that holds most."""
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
        self.is_counted = False
        """Whether what is added has to be counted."""
        self._count_nothing()

    def _count_nothing(self) -> None:
        self._sizes: Shares[int] = Shares()
        self._dropped: set[int] = set()
        self._dropped_bytes = 0

    @property
    def memory(self) -> int:
        return self._sizes.size + self._dropped_bytes

    def count(
        self,
        messages: Iterable[msg.ToClient],
        most: int,
        owner_of: Callable[[int], str] = lambda _: "",
        *,
        is_still: bool = True,
    ) -> set[int]:
        """Count messages that were added; return the requests that too much waits of.

        Args:
            most: bytes of all requests.
            owner_of: returns on whose behalf a request is.
            is_still: whether the client has taken nothing for a while.
        """
        self.is_counted = True
        answers: set[int] = set()
        for message in messages:
            for request_id, size in _sizes(message):
                if is_still and self._sizes.of(request_id) > UNREAD_BYTES:
                    answers.add(request_id)
                self._sizes.add(request_id, size, owner_of(request_id))
        if self._sizes.size > most:
            answers.update(self._sizes.excess(most * _LEFT_SHARE))
        return answers

    def drop(self, requests: AbstractSet[int]) -> None:
        self._dropped |= requests
        self._dropped_bytes += sum(map(self._sizes.forget, requests))
        # Else they are left out when their turn comes: to take them out looks at all that waits.
        if self._dropped_bytes > self._sizes.size:
            self.messages = _without(self.messages, self._dropped)
            self._dropped, self._dropped_bytes = set(), 0

    def next_frame(self) -> list[msg.ToClient]:
        """Take the first messages, which leave together.

        Of what is counted they are so few that what is encoded of a long backlog, and decoded of
        it, is never all.
        """
        frame: list[msg.ToClient] = []
        if not self.is_counted:
            frame, self.messages = self.messages, frame
            return frame
        while self.messages and not frame:
            first = self.messages[: _frame_length(self.messages)]
            del self.messages[: len(first)]
            self._forget(first)
            frame = _without(first, self._dropped)
        if not self.messages:
            self.is_counted = False
            self._count_nothing()
        return frame

    def _forget(self, messages: Iterable[msg.ToClient]) -> None:
        for message in messages:
            for request_id, size in _sizes(message):
                if request_id in self._dropped:
                    self._dropped_bytes -= size
                    continue
                self._sizes.add(request_id, -size)
                if not self._sizes.of(request_id):
                    self._sizes.forget(request_id)


def _frame_length(messages: Sequence[msg.ToClient]) -> int:
    size = 0
    for number, message in enumerate(messages, 1):
        size += sum(each for _, each in _sizes(message))
        if size >= _FRAME_BYTES:
            return number
    return len(messages)


def _without(messages: Sequence[msg.ToClient], requests: AbstractSet[int]) -> list[msg.ToClient]:
    if not requests:
        return list(messages)
    others: list[msg.ToClient] = []
    for message in messages:
        if isinstance(message, msg.Events):
            for each in (row for row in outputs_of(message) if row.id not in requests):
                append_event(others, each.id, each.chunk)
        elif not isinstance(message, msg.Output | msg.Rejoined) or message.id not in requests:
            others.append(message)
    return others


def _sizes(message: msg.ToClient) -> Iterator[tuple[int, int]]:
    """Yield request and bytes of each chunk in a message."""
    if isinstance(message, msg.Events):
        yield from zip(message.ids, map(len, message.data), strict=True)
    elif isinstance(message, msg.Output):
        yield message.id, message.chunk.memory
    elif isinstance(message, msg.Rejoined):
        yield message.id, sum(map(len, message.blocks))
