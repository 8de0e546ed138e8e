"""Bytes on the socket between stub and worker: a length, then a list of messages.

The length is four bytes, little end first, and counts what follows; the list is MessagePack. Before
it the large bytes of its first message may come, each as a frame: a length, a marker, the bytes.
Nothing else packs bytes, and a peer that sends more than the limit is cut off.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from lmi_backend.errors import ConnectionLostError, WorkerError
from lmi_backend.ipc.apart import attach, detach
from lmi_backend.unreadable import UNREADABLE

T = TypeVar("T")
Frame = tuple[bytes, ...]
"""A frame in pieces, and before it the frames of its large bytes. They leave in this order."""

LARGEST_FRAME: Final = (1 << 32) - 1
"""Bytes that a length can say: the limit of a peer whose requests were checked before."""
_HEADER = struct.Struct("<I")
_APART: Final = b"\xc6"
"""First byte of a frame of bytes; no list begins so in MessagePack."""
_RECEIVE_BYTES = 1 << 18
_encoder = msgspec.msgpack.Encoder()


def encode(messages: Sequence[object]) -> bytes:
    """Return the frame of some messages."""
    frame = bytearray(_HEADER.size)
    _encoder.encode_into(messages, frame, _HEADER.size)
    _HEADER.pack_into(frame, 0, len(frame) - _HEADER.size)
    return bytes(frame)


def encode_request(message: object) -> Frame:
    """Return the frame of a message; its large bytes are not copied."""
    bare, parts = detach(message)
    return (*_frames_of(parts), encode([bare]))


def _frames_of(parts: Sequence[bytes]) -> Frame:
    if not parts:
        return ()
    heads = (_HEADER.pack(len(_APART) + len(part)) + _APART for part in parts)
    return tuple(piece for pair in zip(heads, parts, strict=True) for piece in pair)


class CheckedEncoder:
    """Makes frames that the other end can read.

    msgspec packs anything a struct holds, also where it is not of the field's type. The other end
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

    def encode_request(self, message: Any) -> Frame:
        """Return the frame of a message, as `encode_request` does; raises like `encode`."""
        bare, parts = detach(message)
        return (*_frames_of(parts), self.encode([bare]))


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
        self._parts: list[io.BytesIO] = []
        """Bytes of the next message."""
        self._due = 0
        """Bytes of the last of these that have not come."""

    @property
    def rest(self) -> int:
        """Bytes of a frame that has begun and is not complete."""
        return len(self._buffer) + sum(part.tell() for part in self._parts)

    def feed(self, data: bytes) -> list[T]:
        """Return the messages that `data` completes, in order.

        Raises:
            ConnectionLostError: `data` is empty: the other end closed.
            WorkerError: a frame is too long, or not what was agreed.
        """
        if not data:
            cut = f" in the middle of a frame ({self.rest} bytes)" if self.rest else ""
            raise ConnectionLostError(f"the other end closed the socket{cut}")
        self._buffer += data
        messages: list[T] = []
        start = 0
        while (end := self._take(start, messages)) is not None:
            start = end
        if start:
            del self._buffer[:start]
        return messages

    def _take(self, start: int, messages: list[T]) -> int | None:
        """Take what begins at `start`; return its end, or None if more must come first."""
        if self._due:
            return self._fill(start)
        body = start + _HEADER.size
        if len(self._buffer) < body:
            return None
        (length,) = _HEADER.unpack_from(self._buffer, start)
        if length > self._limit:
            raise WorkerError(f"a frame of {length} bytes; accepted: at most {self._limit}")
        if self._buffer[body : body + 1] == _APART:
            self._due = length - len(_APART)
            # All of it at once, and none of it touched: what grows is copied.
            self._parts.append(io.BytesIO(bytes(self._due)))
            return body + len(_APART)
        end: int = body + length
        if len(self._buffer) < end:
            return None
        messages += self._decode(memoryview(self._buffer)[body:end])
        return end

    def _fill(self, start: int) -> int | None:
        """Move bytes of a part out of the buffer."""
        with memoryview(self._buffer)[start : start + self._due] as here:
            size = self._parts[-1].write(here)
        self._due -= size
        return start + size if size else None

    def _decode(self, body: memoryview) -> list[T]:
        try:
            messages = self._decoder.decode(body)
        except UNREADABLE as error:
            raise WorkerError(f"a frame that cannot be read: {error}") from error
        finally:
            # The buffer cannot shrink while a view of it is open.
            body.release()
        if self._parts:
            parts, self._parts = [each.getvalue() for each in self._parts], []
            messages[:1] = [attach(each, parts) for each in messages[:1]]
        return messages


def receive(sock: socket.socket, decoder: FrameDecoder[T]) -> list[T]:
    """Block until at least some bytes came, and return the messages they complete."""
    return decoder.feed(sock.recv(_RECEIVE_BYTES))
