"""Which chunks travel in the columns of `messages.Events`, and how they get in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeGuard

from lmi_backend.generation import HttpChunk
from lmi_backend.ipc.messages import Events, HttpOutput
from lmi_backend.token_ids import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.generation import Chunk

_OK: Final = HttpChunk().status


def is_event(chunk: Chunk) -> TypeGuard[HttpChunk]:
    """Tell whether data and token ids are all that a chunk says."""
    return (
        chunk.__class__ is HttpChunk
        and not chunk.is_last
        and not chunk.headers
        and chunk.status == _OK
        and 0 < len(chunk.ids) == chunk.num_tokens * ID_BYTES
    )


def append_event(messages: list[Any], request_id: int, event: HttpChunk) -> None:
    """Append an event to messages: to the last one, if that has events.

    Not to an earlier one: what has been said of a request in between must stay before it.
    """
    last = messages[-1] if messages else None
    if last.__class__ is not Events:
        last = Events([], [], [])
        messages.append(last)
    last.ids.append(request_id)
    last.data.append(event.data)
    last.token_ids.append(event.ids)


def chunks_of(events: Events) -> list[tuple[int, HttpChunk]]:
    """Return the request id and the chunk of each event."""
    columns = zip(events.ids, events.data, events.token_ids, strict=True)
    return [(number, chunk_of(data, token_ids)) for number, data, token_ids in columns]


def chunk_of(data: bytes, token_ids: bytes) -> HttpChunk:
    """Return the chunk of an event."""
    return HttpChunk(data, num_tokens=len(token_ids) // ID_BYTES, ids=token_ids)


def outputs_of(events: Events) -> Iterator[HttpOutput]:
    """Yield a message of its own for each event."""
    for number, chunk in chunks_of(events):
        yield HttpOutput(number, chunk)
