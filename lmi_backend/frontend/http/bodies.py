"""The bodies of requests: how much of them is held, and how much work one may make.

Their content encodings are decoded with a bound. An upload of files is read for its model alone.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from backports import zstd

from lmi_backend.errors import HttpError
from lmi_backend.json_text import (
    MOST_VALUES,
    UNREADABLE,
    TooManyValuesError,
    check_values,
    problem_of,
)
from lmi_backend.printable import printable
from lmi_backend.shares import FREE_BYTES, Shares

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Iterator,
        Mapping,
    )


ACCEPTED: Final = ("gzip", "deflate", "zstd")
_ALIASES: Final = {"x-gzip": "gzip"}
WINDOW_BYTES: Final = 8 << 20
"""Of zstd's decoder: the most that RFC 9659 allows in HTTP."""
_MOST_MEMBERS: Final = 2048
"""Members of a body. Each takes time at any size; tools that cut a text make pieces of 64 KiB or
more."""
_STEP: Final = 1 << 18
"""Bytes that one step decodes at most."""
_GZIP, _ZLIB, _RAW = 31, 15, -15
"""What zlib calls its three formats."""


def encoding_of(headers: Mapping[str, str]) -> str:
    """Return the encoding of a body; empty for none.

    Args:
        headers: those of its request, with names in lower case.

    Raises:
        HttpError: it is none of `ACCEPTED` (415).
    """
    # Chunks are read by the server's protocol.
    transfer = headers.get("transfer-encoding", "").lower().removesuffix("chunked").rstrip(", \t")
    given = ", ".join(filter(None, (headers.get("content-encoding", "").strip(), transfer)))
    name = _ALIASES.get(given.lower(), given.lower())
    if name in ("", "identity"):
        return ""
    if name not in ACCEPTED:
        text = f"Content-Encoding: {printable(given, 80)}; accepted: one of {', '.join(ACCEPTED)}"
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    return name


def decoded(data: bytes, encoding: str, limit: int) -> Iterator[bytes]:
    """Yield what a body decodes to, in pieces of 256 KiB or less; some are empty.

    A body may have members that follow each other, as gzip and zstd allow.

    Raises:
        HttpError: the body is wrong (400), or decodes to more than `limit` bytes (413).
    """
    num_members, size, rest = 0, 0, io.BytesIO(data)
    while rest.tell() < len(data):
        num_members += 1
        if num_members > (1 if encoding == "deflate" else _MOST_MEMBERS):
            raise _wrong(encoding, "too much follows its first member")
        for piece in _member(encoding, rest):
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            yield piece


def _member(encoding: str, rest: io.BytesIO) -> Iterator[bytes]:
    """Yield what the next member decodes to, and leave what follows it."""
    decoder = _DECODERS[encoding](bytes(rest.getbuffer()[rest.tell() :][:2]))
    given, is_full = b"", False
    while not decoder.eof:
        given = given or (b"" if is_full else rest.read(_STEP))
        if not (given or is_full):
            raise _wrong(encoding, "it is cut short")
        try:
            piece = decoder.decompress(given, _STEP)
        except (zlib.error, zstd.ZstdError) as error:
            raise _wrong(encoding, str(error)) from error
        # zstd's decoder holds what it has not yet read.
        given, is_full = getattr(decoder, "unconsumed_tail", b""), len(piece) == _STEP
        yield piece
    rest.seek(-len(decoder.unused_data), io.SEEK_CUR)


def _wrong(encoding: str, reason: str) -> HttpError:
    return HttpError(HTTPStatus.BAD_REQUEST, f"the body is not {encoding}: {reason}")


_OF_ZSTD: Final[dict[int, int]] = {
    zstd.DecompressionParameter.window_log_max: WINDOW_BYTES.bit_length() - 1
}


def _inflater(data: bytes) -> Any:
    has_header = data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
    return zlib.decompressobj(_ZLIB if has_header else _RAW)


_DECODERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "gzip": lambda _: zlib.decompressobj(_GZIP),
    "deflate": _inflater,
    "zstd": lambda _: zstd.ZstdDecompressor(options=_OF_ZSTD),
}


def utf8_of(data: bytes, limit: int) -> bytes:
    """Return JSON in UTF-8 and without a byte-order mark, from any Unicode encoding.

    Args:
        limit: bytes that it may have in UTF-8.

    Raises:
        HttpError: it is not in that encoding (400), or too large (413).
    """
    encoding = json.detect_encoding(data[:4])
    if encoding == "utf-8":
        return data
    try:
        text = data.decode(encoding).encode()
    except UnicodeError as error:
        raise HttpError(HTTPStatus.BAD_REQUEST, f"the body is not {encoding}: {error}") from error
    if len(text) > limit:
        raise too_large(limit)
    return text


ALL_BODIES: Final = 8
"""Times the largest body: what all together may have."""

LARGE: Final = 1 << 18
"""Bytes from which a body is worked on in a thread."""
_Read = TypeVar("_Read")
_aside: Final = ThreadPoolExecutor(1, "bodies")


class ClientGoneError(Exception):
    """The client closed its connection."""


class Bodies:
    """All bodies that a process holds: those that arrive, and those of requests that run.

    When those of an owner are too many bytes, the largest of them that is still arriving is
    refused.

    Args:
        limit: bytes of all, beyond the first 64 KiB of each.
        largest: bytes that one may have.
        seconds: time that one may take to come.
    """

    def __init__(
        self, limit: int = 512 << 20, largest: int = 64 << 20, seconds: float = 60.0
    ) -> None:
        self._limit, self.largest, self._seconds = limit, largest, seconds
        self.held: Shares[Arrival] = Shares()
        """Bytes that count."""
        self._arriving: set[Arrival] = set()
        self._decodes = asyncio.Lock()

    async def read(
        self,
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        encoding: str = "",
        owner: str = "",
    ) -> tuple[bytes, Arrival]:
        """Read a body; return it, and what to `release` when its request is finished.

        Args:
            encoding: what it is decoded from, as `encoding_of` names it.
            owner: on whose behalf it is held.

        Raises:
            HttpError: it is too large (413), too slow (408), wrongly encoded (400), or the owner's
                are too large together (503).
            ClientGoneError: the client left in the middle.
        """
        arrival = Arrival(owner)
        text = f"the body did not come within {self._seconds:.0f} s"
        slow = HttpError(HTTPStatus.REQUEST_TIMEOUT, text)
        timer = asyncio.get_running_loop().call_later(self._seconds, arrival.stop, slow)
        self._arriving.add(arrival)
        # Its bytes are not copied once more in the end.
        data = io.BytesIO()
        try:
            while arrival.is_open:
                data.write(_part(await receive(), arrival))
                self._count(arrival, data.tell(), self.largest)
            timer.cancel()
            if not encoding:
                return data.getvalue(), arrival
            return await self._decode(arrival, data.getvalue(), encoding), arrival
        except BaseException as error:
            self.release(arrival)
            if isinstance(error, asyncio.CancelledError) and arrival.error is not None:
                raise arrival.error from None
            raise
        finally:
            timer.cancel()
            self._arriving.discard(arrival)
            arrival.task = None
            # A frame that an exception holds would hold this too.
            data.close()

    async def _decode(self, arrival: Arrival, data: bytes, encoding: str) -> bytes:
        """Decode a body, one at a time, in steps between which others have their turn."""
        body = io.BytesIO()
        async with self._decodes:
            for piece in decoded(data, encoding, self.largest):
                body.write(piece)
                self._count(arrival, len(data) + body.tell(), math.inf)
                await asyncio.sleep(0)
        self._count(arrival, body.tell(), math.inf)
        return body.getvalue()

    def release(self, arrival: Arrival) -> None:
        self.held.forget(arrival)

    def _count(self, arrival: Arrival, length: int, limit: float) -> None:
        if length > limit:
            raise too_large(int(limit))
        more = max(0, length - FREE_BYTES) - self.held.of(arrival)
        while more > 0 and not self.held.has_room(more, self._limit, arrival.owner):
            own = [each for each in self._arriving if each.owner == arrival.owner]
            largest = max(own, key=self.held.of)
            if largest is arrival or not self.held.forget(largest):
                raise _full(self._limit)
            self._arriving.discard(largest)
            largest.stop(_full(self._limit))
        self.held.add(arrival, more, arrival.owner)


class Arrival:
    """A body that is arriving, or is held; read by the task that makes this."""

    def __init__(self, owner: str = "") -> None:
        self.owner = owner
        self.task = asyncio.current_task()
        """None once it is read."""
        self.is_open = True
        """Whether more is to come."""
        self.error: HttpError | None = None
        """Why it was stopped."""

    def stop(self, error: HttpError) -> None:
        """Have the task raise an error; called while it waits for the next part."""
        if self.error is None and self.task is not None:
            self.error = error
            self.task.cancel()


def _part(message: Mapping[str, Any], arrival: Arrival) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    arrival.is_open = message.get("more_body", False)
    part: bytes = message.get("body", b"")
    return part


def too_large(limit: int) -> HttpError:
    text = f"the body is larger than {limit} bytes (--max-body)"
    return HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def _full(limit: int) -> HttpError:
    text = f"the bodies of this key's requests together exceed its share of {limit} bytes"
    return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, f"{text} for all (8 x --max-body)")


async def aside(size: int, work: Callable[..., _Read], *given: Any) -> _Read:
    """Return what some work makes of a body; of a large one in a thread, so that others run too.

    Python lets the event loop run between two calls of the thread's, so it waits for one of them at
    most.

    Args:
        size: bytes of the body.
        work: reads it; it changes nothing that others see.
        given: its arguments.
    """
    if size <= LARGE:
        return work(*given)
    return await asyncio.get_running_loop().run_in_executor(_aside, work, *given)


class _Names(msgspec.Struct):
    model: Any = None


_names: Final = msgspec.json.Decoder(_Names)
_objects: Final = msgspec.json.Decoder(dict[str, Any])


def read_model(data: bytes) -> str:
    """Return the name of the model in a body, or nothing. Raises HttpError: it is no object."""
    named = _decode(_names, data).model
    if named is None:
        return ""
    if not isinstance(named, str):
        raise HttpError(HTTPStatus.BAD_REQUEST, "model is not a string")
    return named


def read_object(data: bytes) -> dict[str, Any]:
    """Return a body that is a JSON object. Raises HttpError: it is none, or has too many values."""
    refuse_many_values(data)
    return _decode(_objects, data)


def refuse_many_values(data: bytes, most: int = MOST_VALUES) -> None:
    """Raise HttpError for JSON of so many values that reading it would delay everybody."""
    if len(data) <= most:
        return
    try:
        check_values(data, most)
    except TooManyValuesError as error:
        text = f"the body {error}"
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text) from None


def _decode(decoder: msgspec.json.Decoder[_Read], data: bytes) -> _Read:
    try:
        return decoder.decode(data)
    except UNREADABLE as error:
        problem = problem_of(error, data)
        raise HttpError(HTTPStatus.BAD_REQUEST, f"the body {problem}") from error


_KIND: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(rf"{_KIND}\s*;.*?boundary=\"?([^\";,\s]{{1,70}})", re.IGNORECASE)
_NAME: Final = re.compile(rb"\bname=\"?model\"?(?:[;\s]|$)", re.IGNORECASE)
_FILE: Final = b"filename"
_MOST: Final = 1 << 16
"""Bytes of all fields but files: a server reads them on its only event loop."""
_PART: Final = 64
"""Bytes that a field counts besides its own."""


def model_in_upload(data: bytes, content_type: str) -> str:
    """Return the name of the model in an upload; empty if it names none.

    Raises:
        HttpError: it is of another type (400), or its fields are too long (413).
    """
    if (match := _BOUNDARY.match(content_type)) is None:
        text = f"content-type {content_type[:_MOST]!r}; accepted: {_KIND} with a boundary"
        raise HttpError(HTTPStatus.BAD_REQUEST, text)
    mark = b"--" + match[1].encode("latin-1", "replace")
    name, size, begin = b"", 0, data.find(mark)
    while begin >= 0:
        begin += len(mark)
        end = data.find(mark, begin)
        head_end = data.find(b"\r\n\r\n", begin, end if end >= 0 else len(data))
        head = data[begin:head_end] if head_end >= 0 else b""
        size += _PART + len(head)
        if end >= 0 and _FILE not in head.lower():
            size += end - begin
            if _NAME.search(head):
                name = data[head_end + 4 : min(end, head_end + _MOST)].strip()
        if size > _MOST:
            text = f"the fields besides files have {size} bytes; accepted: at most {_MOST}"
            raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        begin = end
    return name.decode("utf-8", "replace")
