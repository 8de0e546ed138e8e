"""What a client of an endpoint has not been sent yet, while it does not keep up."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.events import append_event, rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

UNREAD_BYTES: Final = 8 << 20
"""Of one answer that nobody reads, in each process that it passes; then it is ended."""
UNREAD: Final = "the client does not read its answer"
_FRAME_BYTES: Final = 1 << 20


def memory_of(messages: Sequence[msg.ToClient]) -> int:
    """Return how many bytes the chunks in some messages take, about."""
    return sum(size for message in messages for _, size in _sizes(message))


def next_frame(messages: Sequence[msg.ToClient]) -> int:
    """Return how many of the first messages leave together.

    Few enough that what is encoded of a long backlog, and decoded of it, is never all of it.
    """
    size = 0
    for number, message in enumerate(messages, 1):
        size += memory_of([message])
        if size >= _FRAME_BYTES:
            return number
    return len(messages)


def unread(messages: Sequence[msg.ToClient]) -> set[int]:
    """Return the requests that too much waits of.

    A single chunk is never too much, however large it is: an answer that comes whole is one.
    """
    found: set[int] = set()
    sizes: defaultdict[int, int] = defaultdict(int)
    for message in messages:
        for request_id, size in _sizes(message):
            if sizes[request_id] > UNREAD_BYTES:
                found.add(request_id)
            sizes[request_id] += size
    return found


def without(messages: Sequence[msg.ToClient], requests: AbstractSet[int]) -> list[msg.ToClient]:
    """Return messages, but for the chunks of some requests."""
    kept: list[msg.ToClient] = []
    for message in messages:
        if isinstance(message, msg.Events):
            for row in (each for each in rows(message) if each[0] not in requests):
                append_event(kept, *row)
        elif not isinstance(message, msg.Output | msg.HttpOutput) or message.id not in requests:
            kept.append(message)
    return kept


def _sizes(message: msg.ToClient) -> Iterator[tuple[int, int]]:
    """Yield request and bytes of each chunk in a message."""
    if isinstance(message, msg.Events):
        yield from zip(message.ids, map(len, message.data), strict=True)
    elif isinstance(message, msg.Output | msg.HttpOutput):
        yield message.id, message.chunk.memory
