"""The chunks of an answer that is kept, as bytes that a front end can read.

The chunks of a stream are much alike. Compressed together, each takes some twenty bytes.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lmi_backend.generation import Chunk
    from lmi_backend.ipc.rejoining import Before

_BLOCK_BYTES: Final = 8 << 10
"""Size of the chunks that are compressed together, about."""
_FAST: Final = 1
_END: Final = b"\n\n"
"""Of an event."""
_ANSWER_BYTES: Final = 2048
"""Memory of an answer without its chunks, about."""
_OBJECT_BYTES: Final = 100
"""The same of a block."""


class KeptChunks:
    """Keeps chunks, in the order in which they came.

    Args:
        before: what came before them from another process.
    """

    def __init__(self, before: Before | None = None) -> None:
        self.before = before
        self._blocks: list[bytes] = []
        self._latest = bytearray()
        self.is_empty = before is None
        self.size = _ANSWER_BYTES + (before.memory if before else 0)
        """Bytes of memory, about."""

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Keep chunks; what becomes of them later does not matter."""
        frame = encode([message_of(0, chunk) for chunk in chunks])
        self.is_empty = False
        self._latest += frame
        self.size += len(frame)
        if len(self._latest) >= _BLOCK_BYTES:
            self.compress()

    def compress(self) -> None:
        """Compress the latest chunks."""
        if not self._latest:
            return
        data = zlib.compress(self._latest, _FAST)
        self._blocks.append(data)
        self.size += len(data) + _OBJECT_BYTES - len(self._latest)
        self._latest = bytearray()

    def blocks(self) -> list[bytes]:
        """Return all that is kept, for `chunks_in`."""
        self.compress()
        return list(self._blocks)


def message_of(request_id: int, chunk: Chunk) -> msg.Output | msg.HttpOutput:
    """Return the message that hands a chunk on."""
    if isinstance(chunk, Delta):
        return msg.Output(request_id, chunk)
    return msg.HttpOutput(request_id, chunk)


def chunks_in(blocks: Sequence[bytes]) -> Iterator[list[Chunk]]:
    """Yield the chunks of each block.

    Raises:
        WorkerError: a block is not what was agreed.
        zlib.error: the same.
    """
    for block in blocks:
        decoder: FrameDecoder[msg.Output | msg.HttpOutput] = FrameDecoder(
            msg.Output | msg.HttpOutput, limit=LARGEST_FRAME
        )
        yield [message.chunk for message in decoder.feed(zlib.decompress(block))]


def chunks_before(before: Before) -> Iterator[list[Chunk]]:
    """Yield chunks whose data are the events of another process.

    The last one is what the front end has made them of, if it makes them (`RestoredForm`).

    Raises:
        ValueError: a client has got something else.
        zlib.error: they are not what was agreed.
    """
    texts = [zlib.decompress(block) + _END for block in before.events]
    texts.append(before.rest)
    if before.taken is not None:
        for text in texts:
            yield [HttpChunk(text, headers=before.headers)]
        yield [replace(before.taken, ids=before.ids)]
        return
    if not texts[0].startswith(before.head):
        raise ValueError("its beginning is another")
    if sum(text.count(b"\n") for text in texts) != before.num_lines:
        raise ValueError("it has other lines")
    # The first chunk is as it was: the model finds in it what names the answer.
    texts[:1] = [before.head, texts[0][len(before.head) :]]
    for number, text in enumerate(texts):
        chunk = HttpChunk(text, headers=before.headers)
        if not number:
            chunk.ids, chunk.num_tokens = before.ids, before.num_tokens
            chunk.num_prompt_tokens = before.num_prompt_tokens
        yield [chunk]
