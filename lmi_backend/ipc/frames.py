"""Bytes on the socket between stub and worker: a length, then a list of messages.

The length is four bytes, little end first, and counts what follows; the list is MessagePack.
Nothing else packs bytes, and a peer that sends more than the limit is cut off.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec

from lmi_backend.errors import ConnectionLostError, WorkerError

T = TypeVar("T")

LARGEST_FRAME: Final = (1 << 32) - 1
"""Bytes that a length can say: the limit of a peer whose requests were checked before."""
_HEADER = struct.Struct("<I")
_RECEIVE_BYTES = 1 << 18
_encoder = msgspec.msgpack.Encoder()


def encode(messages: Sequence[object]) -> bytes:
    """Return the frame of some messages."""
    frame = bytearray(_HEADER.size)
    _encoder.encode_into(messages, frame, _HEADER.size)
    _HEADER.pack_into(frame, 0, len(frame) - _HEADER.size)
    return bytes(frame)


class CheckedEncoder:
    """Makes frames that the other end can read.

    msgspec packs whatever a struct holds, also where it is not of the field's type. The other end
    would close the connection, and with it every request, for one such value. Reading a frame back
    takes 0.2 µs a chunk.

    Args:
        kind: union of the messages the other end takes.
    """

    def __init__(self, kind: object) -> None:
        self._decoder = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]

    def encode(self, messages: Sequence[object]) -> bytes:
        """Return the frame of some messages.

        Raises:
            ValueError: a value is not of its field's type, or cannot be packed.
        """
        try:
            frame = encode(messages)
            self._decoder.decode(memoryview(frame)[_HEADER.size :])
        except Exception as error:
            # Values of others' code: they are too large, nested too deeply, not text …
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return frame


class FrameDecoder(Generic[T]):
    """Cuts a byte stream into lists of messages.

    Args:
        kind: union of the messages the other end may send.
        limit: bytes of the largest frame.
    """

    def __init__(self, kind: object, *, limit: int) -> None:
        self._decoder: msgspec.msgpack.Decoder[list[T]] = msgspec.msgpack.Decoder(list[kind])  # type: ignore[valid-type]
        self._limit = limit
        self._buffer = bytearray()

    @property
    def rest(self) -> int:
        """Bytes of a frame that has begun and is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[T]:
        """Return the messages that `data` completes, in order.

        Raises:
            ConnectionLostError: `data` is empty: the other end closed.
            WorkerError: a frame is too long, or not what was agreed.
        """
        if not data:
            cut = f" in the middle of a frame ({len(self._buffer)} bytes)" if self._buffer else ""
            raise ConnectionLostError(f"the other end closed the socket{cut}")
        buffer = self._buffer
        buffer += data
        messages: list[T] = []
        start = 0
        while (end := self._frame_end(start)) is not None:
            messages += self._decode(memoryview(buffer)[start + _HEADER.size : end])
            start = end
        if start:
            del buffer[:start]
        return messages

    def _frame_end(self, start: int) -> int | None:
        """Return where the frame that begins at `start` ends, if all of it is here."""
        body = start + _HEADER.size
        if len(self._buffer) < body:
            return None
        (length,) = _HEADER.unpack_from(self._buffer, start)
        if length > self._limit:
            raise WorkerError(f"a frame of {length} bytes; accepted: at most {self._limit}")
        return body + length if len(self._buffer) >= body + length else None

    def _decode(self, body: memoryview) -> list[T]:
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WorkerError(f"a frame that cannot be read: {error}") from error
        finally:
            # The buffer cannot shrink while a view of it is open.
            body.release()


def receive(sock: socket.socket, decoder: FrameDecoder[T]) -> list[T]:
    """Block until at least some bytes came, and return the messages they complete."""
    return decoder.feed(sock.recv(_RECEIVE_BYTES))
