"""What came of an answer, as bytes that a front end can read.

The chunks of a stream are much alike. Compressed together, each takes some twenty bytes.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.frames import LARGEST_FRAME, FrameDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lmi_backend.generation import Chunk

Logged = msg.Output | msg.Failure
"""A part of an answer; its number of the request means nothing here."""
_BLOCK_BYTES: Final = 8 << 10
"""Size of the parts that are compressed together, about."""
_FAST: Final = 1
_ANSWER_BYTES: Final = 2048
"""Memory of an answer without its chunks, about."""
_OBJECT_BYTES: Final = 100
"""Memory of a block without its data, about."""


class ChunkLog:
    """The parts of an answer in their order, after a block for what another process has sent."""

    def __init__(self, first: bytes = b"") -> None:
        self._blocks = [first] if first else []
        self._latest = bytearray()
        self.size = _ANSWER_BYTES + len(first)
        """Bytes of memory, about."""

    @property
    def is_empty(self) -> bool:
        return not (self._blocks or self._latest)

    def add(self, parts: Sequence[Logged]) -> None:
        """Keep parts; what becomes of them later does not matter."""
        frame = encode(parts)
        self._latest += frame
        self.size += len(frame)
        if len(self._latest) >= _BLOCK_BYTES:
            self.compress()

    def compress(self) -> None:
        if self._latest:
            data = zlib.compress(self._latest, _FAST)
            self._blocks.append(data)
            self.size += len(data) + _OBJECT_BYTES - len(self._latest)
            self._latest = bytearray()

    def blocks(self) -> list[bytes]:
        self.compress()
        return list(self._blocks)


def block_of(chunk: Chunk) -> bytes:
    return zlib.compress(encode([msg.Output(0, chunk)]), _FAST)


def parts_in(block: bytes) -> list[Logged]:
    decoder: FrameDecoder[Logged] = FrameDecoder(Logged, limit=LARGEST_FRAME)
    return decoder.feed(zlib.decompress(block))
