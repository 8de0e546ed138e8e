"""The bodies of requests: how much of them is held, and how much work one may make."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from lmi_backend.errors import HttpError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

ALL_BODIES: Final = 8
"""Times the largest body: what all together may have."""
FREE_BYTES: Final = 1 << 16
"""Of each body; not counted, so that large bodies of some clients leave room for small ones."""
LITTLE: Final = 1 << 18
"""Bytes of a body that cannot have many values."""
_SLICE: Final = 1 << 16
MOST_VALUES: Final = 50_000
"""Of a JSON body that the front end reads as a whole: about 20 ms of its one event loop."""
_BAD_REQUEST, _TOO_SLOW, _TOO_LARGE, _FULL = 400, 408, 413, 503


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

    async def read(
        self, receive: Callable[[], Awaitable[Mapping[str, Any]]], limit: int, seconds: float
    ) -> tuple[bytes, int]:
        """Read a body; return it, and what to `release` when its request has ended.

        Args:
            receive: ASGI's.
            limit: bytes it may have.
            seconds: time it may take.

        Raises:
            HttpError: it is too large (413), too slow (408), or all bodies are (503).
            ClientGoneError: the client left in the middle.
        """
        arrival = _Arrival()
        timer = asyncio.get_running_loop().call_later(seconds, arrival.stop, _too_slow(seconds))
        self._arriving.add(arrival)
        data = bytearray()
        try:
            while arrival.is_open:
                data += _part(await receive(), arrival)
                self._count(arrival, len(data), limit)
            return bytes(data), arrival.size
        except BaseException as error:
            self.release(arrival.size)
            if isinstance(error, asyncio.CancelledError) and arrival.error is not None:
                raise arrival.error from None
            raise
        finally:
            timer.cancel()
            self._arriving.discard(arrival)
            # A frame that an exception holds would hold this too.
            data.clear()

    def release(self, size: int) -> None:
        """Note that a body is not held any more."""
        self.held -= size

    def _count(self, arrival: _Arrival, length: int, limit: int) -> None:
        if length > limit:
            raise too_large(limit)
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
    return HttpError(_TOO_LARGE, f"the body is larger than {limit} bytes (--max-body)")


def _too_slow(seconds: float) -> HttpError:
    return HttpError(_TOO_SLOW, f"the body did not come within {seconds:.0f} s")


def _full(limit: int) -> HttpError:
    text = f"the bodies of all requests together have more than {limit} bytes (8 x --max-body)"
    return HttpError(_FULL, text)


def _too_many(most: int) -> HttpError:
    text = f"the body has more than {most} values, in more than {LITTLE} bytes"
    return HttpError(_TOO_LARGE, text)


async def check_values(data: bytes, most: int = MOST_VALUES) -> None:
    """Refuse JSON of so many values that reading it would delay everybody.

    The text is looked at in slices, between which others have their turn. What is no JSON is for
    the reader to find.

    Raises:
        HttpError: there are too many values (413).
    """
    if len(data) <= LITTLE:
        return
    values, is_in_string, rest = 0, False, b""
    for at in range(0, len(data), _SLICE):
        text = rest + data[at : at + _SLICE]
        # Without pairs of backslashes and escaped quotes, each quote begins or ends a string.
        text = text.replace(b"\\\\", b"")
        rest = b"\\" if text.endswith(b"\\") else b""
        parts = text.removesuffix(b"\\").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_in_string::2])
        values += len(parts) // 2 + sum(map(outside.count, (b",", b"[", b"{")))
        is_in_string ^= len(parts) % 2 == 0
        if values > most:
            raise _too_many(most)
        await asyncio.sleep(0)


async def aside(size: int, work: Callable[..., _Read], *given: Any) -> _Read:
    """Return what some work makes of a body; of a large one in a thread, so that others run too.

    Python lets the event loop run between two calls of the thread's, so it waits for one of them at
    most: to decode a string of 60 MB takes a fifth of a second.

    Args:
        size: bytes of the body.
        work: reads it; it changes nothing that others see.
        given: its arguments.
    """
    if size <= LITTLE:
        return work(*given)
    return await asyncio.get_running_loop().run_in_executor(_aside, partial(work, *given))


class _Names(msgspec.Struct):
    """What of a body decides where it goes."""

    model: Any = None


_names: Final = msgspec.json.Decoder(_Names)
_objects: Final = msgspec.json.Decoder(dict[str, Any])


def read_model(data: bytes) -> str:
    """Return the name of the model that a body asks for; empty where it names none.

    Raises:
        HttpError: it is no JSON object, or is nested too deeply.
    """
    named = _decode(_names, data).model
    if named is None:
        return ""
    if not isinstance(named, str):
        raise HttpError(_BAD_REQUEST, "model is not a string")
    return named


async def model_of(data: bytes) -> str:
    """Return what `read_model` does; raises like it."""
    return await aside(len(data), read_model, data)


async def read_object(data: bytes) -> dict[str, Any]:
    """Return a body that is a JSON object.

    Raises:
        HttpError: it is none, is nested too deeply, or has too many values.
    """
    await check_values(data)
    return await aside(len(data), _decode, _objects, data)


def _decode(decoder: msgspec.json.Decoder[_Read], data: bytes) -> _Read:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise HttpError(_BAD_REQUEST, f"the body is not an object: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(_BAD_REQUEST, f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise HttpError(_BAD_REQUEST, "the body is nested too deeply") from error
