"""Which chunks travel in the columns of `messages.Events`, and how they get in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.ipc.messages import Deltas, Events, Output
from lmi_backend.tokenization import ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.generation import Chunk

_OK: Final = HttpChunk().status
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Delta).decode


def is_event(chunk: Chunk) -> bool:
    """Tell whether a chunk is of the middle of a stream, and has the ids of all of its tokens."""
    if not chunk.ids:
        return False
    if chunk.__class__ is Delta:
        says_more = chunk.finish_reason is not None
    else:
        says_more = chunk.is_last or bool(chunk.headers) or chunk.status != _OK  # type: ignore[union-attr]
    return not says_more and len(chunk.ids) == chunk.num_tokens * ID_BYTES


def append_event(messages: list[Any], request_id: int, event: Chunk) -> None:
    """Append an event to messages: to the last columns of its kind, if no other message follows.

    Not to earlier ones: what has been said of a request in between must stay before it. A request
    has one kind of events, so what columns of the other kind say is of others.

    Raises:
        Exception: a value in it cannot be packed, or is not of its field's type; nothing was
            appended.
    """
    kind: type[Events] = Events
    if event.__class__ is HttpChunk:
        data, ids = event.data, event.ids
    else:
        kind, ids, event.ids = Deltas, event.ids, b""
        try:
            data = _pack(event)
            # The other end cannot read every value that can be packed.
            _unpack(data)
        finally:
            event.ids = ids
    last = messages[-1] if messages else None
    if last.__class__ is not kind:
        previous = messages[-2] if messages[1:] and isinstance(last, Events) else None
        if previous.__class__ is kind:
            last = previous
        else:
            last = kind([], [], [])
            messages.append(last)
    last.ids.append(request_id)
    last.data.append(data)
    last.token_ids.append(ids)


def chunk_of(kind: type[Events], data: bytes, token_ids: bytes) -> Chunk:
    """Return the chunk of an event.

    Raises:
        msgspec.DecodeError: the data are none.
    """
    if kind is Deltas:
        return delta_of(data, token_ids)
    return HttpChunk(data, num_tokens=len(token_ids) // ID_BYTES, ids=token_ids)


def delta_of(data: bytes, token_ids: bytes) -> Delta:
    """Return the chunk of an event of `Deltas`; raises like `chunk_of`."""
    delta = _unpack(data)
    delta.ids = token_ids
    return delta


def outputs_of(events: Events) -> Iterator[Output]:
    for number, *event in zip(events.ids, events.data, events.token_ids, strict=True):
        yield Output(number, chunk_of(events.__class__, *event))
