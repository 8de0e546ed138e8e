"""What msgspec raises for JSON that it cannot read, and what a client is told of it."""

from typing import Final

import msgspec

from lmi_backend.printable import printable

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Text that is not UTF-8, or that nests too deeply, raises no `DecodeError`."""
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
