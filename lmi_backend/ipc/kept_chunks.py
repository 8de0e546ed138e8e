"""The chunks of an answer that is kept, as bytes that a front end can read.

The chunks of a stream are much alike. Compressed together, each takes some twenty bytes.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from lmi_backend.generation import Delta
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lmi_backend.generation import Chunk

_BLOCK_BYTES: Final = 8 << 10
"""Size of the chunks that are compressed together, about."""
_FAST: Final = 1
_ANSWER_BYTES: Final = 2048
"""Memory of an answer without its chunks, about."""
_OBJECT_BYTES: Final = 100
"""The same of a block."""


class KeptChunks:
    """Keeps chunks, in the order in which they came."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._latest = bytearray()
        self.is_empty = True
        self.size = _ANSWER_BYTES
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
