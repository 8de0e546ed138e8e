"""Read large JSON in turns: first its outline without long strings, then each string in pieces.

A JSON reader holds the GIL until it has read the whole text: 0.1 s for 60 MB, in which nothing else
of the process runs. The outline of such a text is small, and each turn here takes about 1 ms. A
client gets the reason why msgspec cannot read its JSON.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from lmi_backend.printable import printable

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Text that is not UTF-8, or that nests too deeply, raises no `DecodeError`. No error of msgspec is
a ValueError before 0.21."""
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_OBJECT: Final = "Expected `"


def problem_of(error: Exception, data: bytes) -> str:
    """Return the end of the sentence "the body …" for one of `UNREADABLE`.

    Args:
        error: what the reader of an object raised.
        data: what it read.
    """
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, UnicodeError):
        return f"is not UTF-8: {error}"
    if not isinstance(error, msgspec.ValidationError):
        return f"is not JSON: {error}"
    problem = str(error).partition(" - at ")[0]
    if problem.startswith(_NO_OBJECT):
        return f"is not an object: {problem}"
    return f"has a value that cannot be read: {_place_in(data)}{problem}"


def _place_in(data: bytes) -> str:
    """Return the name of the first member that cannot be read, with a colon; empty for none."""
    try:
        members = _members.decode(data)
    except UNREADABLE:
        return ""
    for name, raw in members.items():
        try:
            msgspec.json.decode(raw)
        except UNREADABLE:
            return f"{printable(name)}: "
    return ""


LARGE: Final = 1 << 18
"""Bytes of JSON up to which it is read at once."""
LONG: Final = 256
"""Bytes of a string above which the outline has a mark for it. No name of a field is so long, with
each letter escaped."""
MOST_BYTES: Final = 16 << 20
"""Of an outline: 20 ms for a reader."""
MOST_WIDE: Final = 8_000_000
"""Characters of a string that are not all ASCII: a single one makes Python copy all before it."""
MOST_VALUES: Final = 50_000
"""Of a large text that is no OpenAI body: about 20 ms for a reader."""
_SLICE: Final = 1 << 15
_PIECE: Final = 1 << 20
_NODES: Final = 4096
"""Values that are looked at in a turn."""
_CONTINUATION: Final = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that begin no character."""
_ESCAPE: Final = 12
"""Bytes of the longest escape: a pair of surrogates."""
_HIGH_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB]")

_Result = TypeVar("_Result")
Turns = Generator[None, None, _Result]
"""Work in turns; its result is what it returns."""


class TooMuchError(ValueError):
    """There are too many values, or too much text that takes long to read."""


class LongString(NamedTuple):
    """A string that the outline has a mark for."""

    start: int
    end: int
    """Where its bytes are, without quotes."""
    characters: int
    """At most so many; an escaped pair of surrogates counts as two."""


class Outline(NamedTuple):
    """A JSON text without its long strings."""

    text: bytes
    mark: str
    """How the strings begin that stand for long ones; random, so that no client's does."""
    long: list[LongString]

    def find(self, value: object) -> LongString | None:
        """Return the long string that a string of the outline stands for, if it does."""
        if not self.long or not isinstance(value, str) or not value.startswith(self.mark):
            return None
        return self.long[int(value[len(self.mark) :])]

    def whole(self, text: bytes, data: bytes) -> bytes:
        """Return a part of the outline with its long strings, which `data` has."""
        first, *rest = text.split(b'"%b' % self.mark.encode())
        pieces = [first]
        for part in rest:
            number, _, after = part.partition(b'"')
            long = self.long[int(number)]
            pieces += (data[long.start - 1 : long.end + 1], after)
        return b"".join(pieces)

    def whole_size(self, text: bytes) -> int:
        """Return the bytes of a part of the outline, with its long strings."""
        _, *marks = text.split(b'"%b' % self.mark.encode())
        strings = (self.long[int(mark[: mark.index(b'"')])] for mark in marks)
        return len(text) + sum(each.end - each.start for each in strings)


async def in_turns(turns: Turns[_Result]) -> _Result:
    """Return the result of some work; others have their turn in between."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            result: _Result = end.value
            return result
        await asyncio.sleep(0)


def at_once(turns: Turns[_Result]) -> _Result:
    """Return the result of some work in a thread, which others interrupt between two turns."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            result: _Result = end.value
            return result


def outline(data: bytes, most: float = math.inf) -> Turns[Outline]:
    """Return the outline of a JSON text. What is no JSON is for the reader of the outline to find.

    Args:
        data: in UTF-8.
        most: values that the text may have.

    Raises:
        TooMuchError: there are more values, more than `MOST_BYTES` of other text, or a string of
            more than `MOST_WIDE` characters that are not all ASCII.
    """
    outliner = _Outliner(data)
    for at in range(0, len(data), _SLICE):
        outliner.add(at)
        if outliner.values > most:
            raise TooMuchError(f"has more than {most} values")
        if len(outliner.text) > MOST_BYTES:
            raise TooMuchError(f"has more than {MOST_BYTES} bytes outside of long strings")
        yield
    return outliner.outline()


class _Outliner:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.text = bytearray()
        self.values = 0
        self._mark = f"{secrets.token_hex(8)}:"
        self._long: list[LongString] = []
        self._start = -1
        """Where the open string begins; -1 outside of strings."""
        self._characters = 0
        """Of the open string, so far."""
        self._is_wide = False
        """Whether some of its characters may need more memory than those of ASCII."""
        self._ends_in_escape = False

    def outline(self) -> Outline:
        if self._start >= 0:
            # Without its end it is no JSON.
            self.text += b'"'
        return Outline(bytes(self.text), self._mark, self._long)

    def add(self, at: int) -> None:
        # Without pairs of backslashes and escaped quotes, each quote begins or ends a string.
        bare = self._data[at : at + _SLICE]
        if self._ends_in_escape:
            bare = b"\0" + bare[1:]
        # Most slices have none, which is found much faster.
        if b"\\" in bare:
            bare = bare.replace(b"\\\\", b"\0\0").replace(b'\\"', b"\0\0")
        self._ends_in_escape = bare.endswith(b"\\")
        parts = bare.split(b'"')
        outside = b"".join(parts[self._start >= 0 :: 2])
        self.values += len(parts) // 2 + sum(map(outside.count, (b",", b"[", b"{")))
        if len(parts) > 1 and self._are_short(parts, at):
            self._add_all(parts, at, at + len(bare))
            return
        for part in parts[:-1]:
            self._add_part(part, at)
            self._add_quote(at + len(part))
            at += len(part) + 1
        self._add_part(parts[-1], at)

    def _are_short(self, parts: list[bytes], at: int) -> bool:
        length = at - self._start if self._start >= 0 else 0
        return length + len(parts[0]) <= LONG and max(map(len, parts)) <= LONG

    def _add_all(self, parts: list[bytes], at: int, end: int) -> None:
        """Add a slice of many short strings without looking at each."""
        is_open = self._start >= 0
        begin = self._start - 1 if is_open else at
        if is_open is (len(parts) % 2 == 0):
            self._start = -1
        else:
            self._open(end - len(parts[-1]))
            self._measure(parts[-1])
            end = self._start - 1
        self.text += self._data[begin:end]

    def _add_part(self, part: bytes, at: int) -> None:
        if self._start >= 0:
            self._measure(part)
            return
        text = self._data[at : at + len(part)]
        if len(text) > LONG:
            # Many blanks are one.
            text = b" ".join((b"x%bx" % text).split())[1:-1]
        self.text += text

    def _add_quote(self, at: int) -> None:
        if self._start < 0:
            self._open(at + 1)
            return
        if at - self._start > LONG:
            self.text += b'"%b%d"' % (self._mark.encode(), len(self._long))
            if self._is_wide and self._characters > MOST_WIDE:
                problem = f"has a text of more than {MOST_WIDE} characters, not all of them ASCII"
                raise TooMuchError(problem)
            self._long.append(LongString(self._start, at, self._characters))
        else:
            self.text += self._data[self._start - 1 : at + 1]
        self._start = -1

    def _open(self, start: int) -> None:
        self._start, self._characters, self._is_wide = start, 0, False

    def _measure(self, part: bytes) -> None:
        """Count the characters of a part of the open string, in which two NULs are an escape."""
        count = len(part)
        if b"\\" in part or b"\0" in part:
            num_codes = part.count(b"\\u")
            count -= part.count(b"\0\0") + part.count(b"\\") + 4 * num_codes
            # Some clients escape a few of ASCII's.
            self._is_wide |= num_codes > part.count(b"\\u00")
        if not part.isascii():
            count -= len(part) - len(part.translate(None, _CONTINUATION))
            self._is_wide = True
        self._characters += count


def read_text(text: str, most: int = MOST_VALUES) -> Any:
    """Return what a client's JSON holds; of a large text in turns, between which threads run.

    Args:
        text: the JSON.
        most: values that a large text may have.

    Raises:
        TooMuchError: there is too much in it.
        ValueError, RecursionError: it cannot be read.
    """
    if len(text) <= LARGE:
        return json.loads(text)
    data = text.encode("utf-8", "surrogatepass")
    outlined = at_once(outline(data, most))
    return at_once(fill(json.loads(outlined.text), outlined, data))


def read_string(data: bytes) -> str:
    """Return a JSON string, as `json` reads it."""
    text: str = json.loads(data.decode("utf-8", "surrogatepass"))
    return text


def fill(
    value: Any, outlined: Outline, data: bytes, read: Callable[[bytes], str] = read_string
) -> Turns[Any]:
    """Return a value of an outline with its long strings; lists and objects are changed.

    Args:
        value: what was read of the outline.
        outlined: the outline.
        data: the text it is of.
        read: reads a JSON string; what it raises passes.
    """
    if not outlined.long:
        return value
    whole = [value]
    left: list[Any] = [whole]
    count = 0
    while left:
        holder = left.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for place, item in list(items):
            count += 1
            if isinstance(item, dict | list):
                left.append(item)
            elif (long := outlined.find(item)) is not None:
                holder[place] = yield from _string(data, long, read)
            if (long := outlined.find(place)) is not None:
                holder[(yield from _string(data, long, read))] = holder.pop(place)
            if count % _NODES == 0:
                yield
    return whole[0]


def _string(data: bytes, long: LongString, read: Callable[[bytes], str]) -> Turns[str]:
    text, at = "", long.start
    while at < long.end:
        cut = _cut(data, at, long.end)
        # Not joined in the end: CPython makes a local string longer in its place.
        text += read(b'"%b"' % data[at:cut])
        at = cut
        yield
    return text


def _cut(data: bytes, start: int, end: int) -> int:
    """Return the end of a piece of a string that cuts no escape and no character."""
    cut = start + _PIECE
    if cut >= end:
        return end
    bare = data[start:cut].replace(b"\\\\", b"\0\0")
    at = bare.find(b"\\", len(bare) - _ESCAPE)
    if at >= 0:
        is_pair = _HIGH_SURROGATE.match(bare, at - _ESCAPE // 2) is not None
        return start + at - (_ESCAPE // 2 if is_pair else 0)
    while cut > start + _PIECE - 3 and data[cut] in _CONTINUATION:
        cut -= 1
    return cut
