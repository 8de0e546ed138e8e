"""The bodies of requests: how much of them is held, and how much work one may make."""

from __future__ import annotations

import asyncio
import io
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from lmi_backend.errors import HttpError
from lmi_backend.outline import LARGE, MOST_VALUES, Outline, TooMuchError, fill, in_turns, outline
from lmi_backend.unreadable import UNREADABLE, problem_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from lmi_backend.frontend.http.encodings import Decoding

ALL_BODIES: Final = 8
"""Times the largest body: what all together may have."""
FREE_BYTES: Final = 1 << 16
"""Of each body; not counted, so that large bodies of some clients leave room for small ones."""

_Read = TypeVar("_Read")
_aside: Final = ThreadPoolExecutor(1, "bodies")


class ClientGoneError(Exception):
    """The client closed its connection."""


class Bodies:
    """All bodies that a process holds: those that arrive, and those of requests that run.

    When they are too many bytes together, the largest body that is still arriving is refused.

    Args:
        limit: bytes of all, beyond the first 64 KiB of each.
    """

    def __init__(self, limit: int = 512 << 20) -> None:
        self._limit = limit
        self.held = 0
        """Bytes that count."""
        self._arriving: set[_Arrival] = set()
        self._decodes = asyncio.Lock()

    async def read(
        self,
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        limit: int,
        seconds: float,
        decoding: Decoding | None = None,
    ) -> tuple[bytes, int]:
        """Read a body; return it, and what to `release` when its request is finished.

        Args:
            receive: ASGI's.
            limit: bytes it may have.
            seconds: time it may take.
            decoding: decodes it.

        Raises:
            HttpError: it is too large (413), too slow (408), wrongly encoded (400), or all bodies
                are too large (503).
            ClientGoneError: the client left in the middle.
        """
        arrival = _Arrival()
        timer = asyncio.get_running_loop().call_later(seconds, _stop_slow, arrival, seconds)
        self._arriving.add(arrival)
        # Its bytes are not copied once more in the end.
        data = io.BytesIO()
        try:
            while arrival.is_open:
                data.write(_part(await receive(), arrival))
                self._count(arrival, data.tell(), limit)
            timer.cancel()
            if decoding is None:
                return data.getvalue(), arrival.size
            return await self._decode(arrival, data.getvalue(), decoding), arrival.size
        except BaseException as error:
            self.release(arrival.size)
            if isinstance(error, asyncio.CancelledError) and arrival.error is not None:
                raise arrival.error from None
            raise
        finally:
            timer.cancel()
            self._arriving.discard(arrival)
            # A frame that an exception holds would hold this too.
            data.close()

    async def _decode(self, arrival: _Arrival, data: bytes, decoding: Decoding) -> bytes:
        """Decode a body; for a large one find the size first, and then reserve memory for it.

        One large body is decoded at a time, in steps between which others use the thread.
        """
        if (body := decoding.at_once(data)) is None:
            async with self._decodes:
                size = 0
                async for piece in _decode_steps(data, decoding):
                    size += len(piece)
                self._count(arrival, len(data) + size, math.inf)
                whole = io.BytesIO()
                async for piece in _decode_steps(data, decoding):
                    whole.write(piece)
            body = whole.getvalue()
        self._count(arrival, len(body), math.inf)
        return body

    def release(self, size: int) -> None:
        """Note that a body is not held any more."""
        self.held -= size

    def _count(self, arrival: _Arrival, length: int, limit: float) -> None:
        if length > limit:
            raise too_large(int(limit))
        size = max(0, length - FREE_BYTES)
        self.held += size - arrival.size
        arrival.size = size
        while self.held > self._limit:
            largest = max(self._arriving, key=lambda each: each.size)
            if largest is arrival or not largest.size:
                raise _full(self._limit)
            self._arriving.discard(largest)
            self.release(largest.size)
            largest.size = 0
            largest.stop(_full(self._limit))


async def _decode_steps(data: bytes, decoding: Decoding) -> AsyncIterator[bytes]:
    pieces = decoding.pieces(data)
    while (piece := await _in_thread(next, pieces, None)) is not None:
        yield piece


class _Arrival:
    """A body that is arriving, read by the task that makes this."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self.size = 0
        """Bytes that count."""
        self.is_open = True
        """Whether more is to come."""
        self.error: HttpError | None = None
        """Why it was stopped."""

    def stop(self, error: HttpError) -> None:
        """Have the task raise an error; called while it waits for the next part."""
        if self.error is None and self._task is not None:
            self.error = error
            self._task.cancel()


def _part(message: Mapping[str, Any], arrival: _Arrival) -> bytes:
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    arrival.is_open = message.get("more_body", False)
    part: bytes = message.get("body", b"")
    return part


def too_large(limit: int) -> HttpError:
    """Return the error of a body of too many bytes."""
    return HttpError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {limit} bytes (--max-body)"
    )


def _stop_slow(arrival: _Arrival, seconds: float) -> None:
    text = f"the body did not come within {seconds:.0f} s"
    arrival.stop(HttpError(HTTPStatus.REQUEST_TIMEOUT, text))


def _full(limit: int) -> HttpError:
    text = f"the bodies of all requests together have more than {limit} bytes (8 x --max-body)"
    return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, text)


async def outline_of(data: bytes, most: float = math.inf) -> Outline:
    """Return the outline of a large JSON text, made in turns.

    Raises:
        HttpError: there is too much in it (413).
    """
    try:
        return await in_turns(outline(data, most))
    except TooMuchError as error:
        text = f"the body {error}, in more than {LARGE} bytes"
        raise HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text) from error


async def check_values(data: bytes, most: int = MOST_VALUES) -> None:
    """Refuse large JSON of so many values that reading it would delay everybody.

    What is no JSON is for the reader to find.

    Raises:
        HttpError: there is too much in it (413).
    """
    if len(data) > LARGE:
        await outline_of(data, most)


async def read_json(data: bytes, read: Callable[[bytes], _Read]) -> _Read:
    """Return what JSON holds; of a large text in turns, so that others run too.

    Args:
        data: the text.
        read: returns what a text holds, plain values; it raises HttpError.

    Raises:
        HttpError: there is too much in it (413), or it cannot be read.
    """
    if len(data) <= LARGE:
        return read(data)
    outlined = await outline_of(data, MOST_VALUES)
    value = read(outlined.text)
    whole: _Read = await in_turns(fill(value, outlined, data, _read_string))
    return whole


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
    return await _in_thread(work, *given)


async def _in_thread(work: Callable[..., _Read], *given: Any) -> _Read:
    return await asyncio.get_running_loop().run_in_executor(_aside, partial(work, *given))


class _Names(msgspec.Struct):
    """The parts of a body that decide where it goes."""

    model: Any = None


_names: Final = msgspec.json.Decoder(_Names)
_objects: Final = msgspec.json.Decoder(dict[str, Any])
_strings: Final = msgspec.json.Decoder(str)


def read_model(data: bytes) -> str:
    """Return the name of the model in a body; empty if it names none.

    Raises:
        HttpError: it is no JSON object, or is nested too deeply.
    """
    named = _decode(_names, data).model
    if named is None:
        return ""
    if not isinstance(named, str):
        raise HttpError(HTTPStatus.BAD_REQUEST, "model is not a string")
    return named


async def model_of(data: bytes) -> str:
    """Return what `read_model` does; raises like it, and for too much in a large body (413)."""
    return read_model(data if len(data) <= LARGE else (await outline_of(data)).text)


async def read_object(data: bytes) -> dict[str, Any]:
    """Return a body that is a JSON object.

    Raises:
        HttpError: it is none, is nested too deeply, or has too many values.
    """
    return await read_json(data, partial(_decode, _objects))


def _read_string(data: bytes) -> str:
    return _decode(_strings, data)


def _decode(decoder: msgspec.json.Decoder[_Read], data: bytes) -> _Read:
    try:
        return decoder.decode(data)
    except UNREADABLE as error:
        problem = problem_of(error, data)
        raise HttpError(HTTPStatus.BAD_REQUEST, f"the body {problem}") from error
