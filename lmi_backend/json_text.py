"""A client's JSON: how many values it may have, and why it cannot be read.

A reader holds the GIL until it has read the whole text. That takes 2 ms a megabyte of text, and 0.2
s a million values. So values are counted first, which takes little and makes none of them.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from lmi_backend.printable import printable

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Text that is not UTF-8, or that nests too deeply, raises no `DecodeError`. No error of msgspec is
a ValueError before 0.21."""
MOST_VALUES: Final = 300_000
"""Of a client's JSON: to read them takes 0.1 s."""
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NO_OBJECT: Final = "Expected `"


class TooManyValuesError(ValueError):
    """JSON has more values than it may; the text is the end of the sentence "the body …"."""


def check_values(data: bytes, most: int = MOST_VALUES) -> None:
    """Raise TooManyValuesError for JSON with more values than `most`, without reading it.

    Each value has a comma before it, or a bracket where it is the first of a list or an object.
    The reader reports what is not JSON.
    """
    if (count := _separators(data)) <= most:
        return
    # In UTF-16 and UTF-32 quotes are other bytes.
    if b"\0" not in data:
        # What is in strings does not count.
        bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        count = bare.count(b'"') // 2
        if count <= 2 * most:
            count = _separators(b"".join(bare.split(b'"')[::2]))
    if count > most:
        raise TooManyValuesError(f"has {count} values; accepted: at most {most}")


def _separators(data: bytes) -> int:
    # Takes the same time for any text.
    return len(data) - len(data.translate(None, b",[{"))


def read_text(text: str, most: int = MOST_VALUES) -> Any:
    """Return what a client's JSON holds, as `json` reads it.

    Raises:
        TooManyValuesError: it has more values than `most`.
        ValueError, RecursionError: it cannot be read.
    """
    if len(text) > most:
        check_values(text.encode("utf-8", "surrogatepass"), most)
    return json.loads(text)


def problem_of(error: Exception, data: bytes) -> str:
    """Return the end of the sentence "the body …" for one of `UNREADABLE`, raised for an object."""
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
