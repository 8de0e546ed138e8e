"""Bytes on the socket between stub and worker: a length, then a list of messages.

The length is four bytes, little end first, and counts what follows; the list is MessagePack. Large
bytes of a request travel as frames of their own before its message: a length, a marker, the bytes.
Inside a message they would be copied by each encoder and decoder. A copy of 60 MB holds the GIL for
35 ms, and all streams of the process wait. Nothing else packs bytes, and a peer that sends more
than the limit is cut off. Who sends never waits for the other end.
"""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from lmi_backend.errors import ConnectionLostError, NotSentError, WorkerError
from lmi_backend.generation import HttpRequest
from lmi_backend.json_text import UNREADABLE
from lmi_backend.threads import guarded_thread

APART_BYTES: Final = 1 << 18
"""Bytes of a body, or of all images of a request, from which on they travel apart."""


def detach(message: Any) -> tuple[Any, list[bytes]]:
    """Return a message without its large bytes, and these bytes."""
    request = getattr(message, "request", None)
    if isinstance(request, HttpRequest):
        if len(request.body) < APART_BYTES:
            return message, []
        return replace(message, request=replace(request, body=b"")), [request.body]
    requests = getattr(message, "requests", ())
    images = [image for each in requests for image in each.images]
    if sum(map(len, images)) < APART_BYTES:
        return message, []
    bare = tuple(replace(each, images=(b"",) * len(each.images)) for each in requests)
    return replace(message, requests=bare), images


def attach(message: Any, parts: Sequence[bytes]) -> Any:
    """Return the message that `detach` took the bytes from; it must have a place for each."""
    request, requests = getattr(message, "request", None), getattr(message, "requests", ())
    if isinstance(request, HttpRequest) and len(parts) == 1:
        return replace(message, request=replace(request, body=parts[0]))
    if sum(len(each.images) for each in requests) != len(parts):
        raise WorkerError(f"{len(parts)} frames of bytes before a {type(message).__name__}")
    left = iter(parts)
    whole = (replace(each, images=tuple(next(left) for _ in each.images)) for each in requests)
    return replace(message, requests=tuple(whole))


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
            raise ConnectionLostError(f"the other process closed the connection{cut}")
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


_PIECE: Final = 1 << 18
"""Bytes after which it is noted that the other end reads."""
_AT_ONCE: Final = 64
"""Pieces; the kernel takes 1,024 in one call."""


def set_timeout(sock: socket.socket, which: int, seconds: float) -> None:
    """Set a kernel's timeout; Python's own would make the socket non-blocking for both sides."""
    whole = int(seconds)
    timeval = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
    sock.setsockopt(socket.SOL_SOCKET, which, timeval)


class Outbox:
    """The frames for one socket, in the order in which they were sent.

    What the socket does not take at once is sent by a thread, which is started with the first such
    frame.

    Args:
        sock: blocking; it is shut down when something cannot be sent.
        what: the other end's name in errors.
        seconds: for which the other end may take nothing of what waits; 0: for ever.
        on_empty: called by the thread when it has sent all that waited.
    """

    def __init__(
        self,
        sock: socket.socket,
        what: str,
        seconds: float,
        on_empty: Callable[[], object] = lambda: None,
    ) -> None:
        set_timeout(sock, socket.SO_SNDTIMEO, seconds)
        self.socket, self._what, self._on_empty = sock, what, on_empty
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._unsent: deque[memoryview] = deque()
        self.writer: threading.Thread | None = None
        self.unsent_bytes = 0
        """What the other end has not taken yet."""
        self.taken_at = 0.0
        """When it took something last of what waited."""
        self.is_broken = False
        """Whether something could not be sent; nothing can be any more."""

    def send(self, *pieces: bytes) -> None:
        """Send a frame, or keep the part that the socket does not take; never blocks.

        Args:
            pieces: of the frame, in their order.

        Raises:
            NotSentError: the other end is gone; it got nothing of the frame.
        """
        with self._lock:
            if self.is_broken:
                raise NotSentError(f"{self._what} cannot be reached: its connection is closed")
            # What waits leaves first.
            sent = 0 if self._unsent else self._send_now(pieces)
            for piece in pieces:
                if sent < len(piece):
                    self._keep(memoryview(piece)[sent:])
                sent = max(0, sent - len(piece))

    def close(self) -> None:
        with self._lock:
            self._break()

    def _send_now(self, pieces: tuple[bytes, ...]) -> int:
        """Return how many bytes the socket took."""
        try:
            return self.socket.sendmsg(pieces[:_AT_ONCE], [], socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._break()
            raise NotSentError(f"{self._what} cannot be reached: {error}") from error

    def _keep(self, rest: memoryview) -> None:
        if not self._unsent:
            self.taken_at = time.monotonic()
        self._unsent.append(rest)
        self.unsent_bytes += len(rest)
        if self.writer is None:
            self.writer = guarded_thread("lmi-outbox", self._write)
            self.writer.start()
        self._has_work.notify()

    def _break(self) -> None:
        self.is_broken = True
        self._unsent.clear()
        self.unsent_bytes = 0
        self._has_work.notify_all()
        # Half a frame may be on its way: the other end could never read on from there.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def _write(self) -> None:
        while (frame := self._next()) is not None:
            try:
                for start in range(0, len(frame), _PIECE):
                    self.socket.sendall(frame[start : start + _PIECE])
                    self.taken_at = time.monotonic()
            except BaseException as error:
                # How much was sent is not known; whoever reads the socket sees its end.
                self.close()
                if isinstance(error, OSError):
                    return
                raise
            with self._lock:
                if not self.is_broken:
                    self._unsent.popleft()
                    self.unsent_bytes -= len(frame)
            if not self._unsent:
                self._on_empty()

    def _next(self) -> memoryview | None:
        """Wait for what is to be sent; return None when nothing will be."""
        with self._has_work:
            self._has_work.wait_for(lambda: self._unsent or self.is_broken)
            return None if self.is_broken else self._unsent[0]
