"""Bodies of Triton's V2 protocol: read by their schema, and written again from what was read.

Triton 24.10 crashes on some bodies that its own schema allows (`classification`) or that nest
deeply. So Triton gets a body with the members below and nothing else. The last of two members with
the same name counts.
"""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from lmi_backend.errors import HttpError
from lmi_backend.printable import printable
from lmi_backend.unreadable import UNREADABLE, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGEST_INT: Final = (1 << 64) - 1
_LEAST_INT: Final = -(1 << 63)
_SHOWN: Final = 300
"""Characters of what msgspec says: it may quote a name of the client's."""
MEMBERS: Final = 4096
"""Of an object."""
PROMPTS: Final = frozenset({"text_input", "inputs", "image"})
"""Inputs whose texts are no JSON; that of any other may be read, and may manage adapters."""

Name = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]*\Z")]
_Scalar = bool | int | float | str | None
_Scalars = list[_Scalar | list[_Scalar]]
_Members = Annotated[dict[Name, _Scalar | _Scalars], Meta(max_length=MEMBERS)]
Body = dict[str, Any]
"""A body of `generate`: scalars, flat lists of them, and `parameters` that hold the same."""
_Body = Annotated[dict[Name, _Scalar | _Scalars | _Members], Meta(max_length=MEMBERS)]
_generate: Final = msgspec.json.Decoder(_Body)


def read_members(data: bytes) -> Body:
    """Return the members of a body of `generate`, for `check_members`.

    Raises:
        HttpError: it is not one (400).
    """
    body: Body = decode(_generate.decode, data)
    return body


def check_members(body: Body) -> Body:
    """Return the members of a body of `generate` with flat lists.

    Raises:
        HttpError: one is not accepted (400).
    """
    # Once more: a large body is read without its long strings, and so without long names.
    decode(partial(msgspec.convert, type=_Body), body)
    for members in (body, *(each for each in body.values() if isinstance(each, dict))):
        for name, value in members.items():
            flat = [one for each in _listed(value) for one in _listed(each)]
            for each in flat or (None,):
                check_member(name, each)
            if isinstance(value, list):
                members[name] = flat
    return body


def write_generate_body(body: Body, tenant: str) -> bytes:
    """Return a body for Triton; a known tenant replaces the one in the body."""
    if tenant:
        nested = body.get("parameters")
        if isinstance(nested, dict):
            nested.pop("tenant", None)
        body["tenant"] = tenant
    return msgspec.json.encode(body)


def texts_of(body: Body) -> tuple[str, ...]:
    """Return the texts of a body of `generate` that may be JSON."""
    nested = [each for each in body.values() if isinstance(each, dict)]
    members = chain.from_iterable(each.items() for each in (body, *nested))
    found = [one for name, value in members if name not in PROMPTS for one in _listed(value)]
    return tuple(each for each in found if isinstance(each, str))


def decode(read: Callable[[Any], Any], data: object) -> Any:
    """Return what a decoder makes of data.

    Raises:
        HttpError: it is no JSON, nests too deeply, or is not what the decoder is for (400).
    """
    try:
        return read(data)
    except msgspec.ValidationError as error:
        shown = printable(str(error), _SHOWN)
        raise refusal(f"the body is not what Triton's protocol has: {shown}") from error
    except UNREADABLE as error:
        raise refusal(f"the body {problem_of(error, b'')}") from error


def check_member(name: str, value: object) -> None:
    """Refuse a parameter that makes Triton do something else than run the model.

    Raises:
        HttpError: it is one, or a number that does not fit in 64 bits (400).
    """
    if name == "classification" or name.startswith("shared_memory"):
        raise refusal(f"{name!r} is not accepted on this port")
    if isinstance(value, int) and not _LEAST_INT <= value <= _LARGEST_INT:
        raise refusal(f"{name!r} has a number that does not fit in 64 bits")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def refusal(text: str) -> HttpError:
    """Return the error of a body that Triton is not to get."""
    return HttpError(HTTPStatus.BAD_REQUEST, text)
