"""How many answers a body wants that the engine reads itself."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.clients.registry import COUNTED
from lmi_backend.errors import RequestError
from lmi_backend.outline import LARGE, at_once, outline
from lmi_backend.unreadable import UNREADABLE

if TYPE_CHECKING:
    from lmi_backend.generation import HttpRequest


class _Body(msgspec.Struct):
    """What decides it, as bodies have it; a body may have more, or be wrong."""

    n: int | None = None
    prompt: msgspec.Raw = msgspec.Raw(b"null")
    prompt_embeds: msgspec.Raw = msgspec.Raw(b"null")


class _Named(msgspec.Struct):
    model: str | None = None


_NAME: Final = msgspec.json.Decoder(_Named)
_BODY: Final = msgspec.json.Decoder(_Body, strict=False)
MANY: Final = 4096
"""Prompts of one large body that are counted."""
_LISTED: Final = re.compile(rb"""\s*\[\s*["[]""")
_NULL: Final = re.compile(rb"\s*null\s*")
_ITEMS: Final = [(f"item{number}", msgspec.Raw, msgspec.Raw()) for number in range(MANY + 1)]
_FIRST: Final = msgspec.json.Decoder(msgspec.defstruct("_First", _ITEMS, array_like=True))
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


def answers_wanted(request: HttpRequest) -> int:
    """Return how many answers a body wants: `n` to each of its prompts.

    A body that cannot be read counts as one answer: the engine refuses it. So does a body of more
    than `MANY` prompts, for prompts beyond that number are not counted.

    Raises:
        RequestError: it is large, and would have to be read by slower means.
    """
    if request.path not in COUNTED:
        return 1
    try:
        body = _read(_outlined(request.body))
        prompts = _prompts(body.prompt) + _prompts(body.prompt_embeds)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return 1
    return max(body.n or 1, 1) * max(prompts, 1)


def model_named(request: HttpRequest) -> str | None:
    """Return the model that a body names; None if it cannot be read."""
    try:
        return _NAME.decode(_outlined(request.body)).model or ""
    except (ValueError, RecursionError):
        return None


def _outlined(body: bytes) -> bytes:
    """Return a body without its long strings, if it is large: other threads run meanwhile."""
    return body if len(body) <= LARGE else at_once(outline(body)).text


def _read(body: bytes) -> _Body:
    """Return a body; raise something where there is none."""
    try:
        return _BODY.decode(body)
    except UNREADABLE:
        if len(body) > LARGE:
            problem = f"of {len(body)} bytes without long texts is no JSON by RFC 8259"
            accepted = f"NaN, Infinity and large numbers in up to {LARGE} bytes"
            raise RequestError(problem, field="the body", accepted=accepted) from None
        # Engines read NaN, and numbers beyond 64 bits.
        read: Any = json.loads(body)
        prompt, embeds = (_raw(read.get(name)) for name in ("prompt", "prompt_embeds"))
        return _Body(int(read.get("n") or 1), prompt, embeds)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def _prompts(raw: msgspec.Raw) -> int:
    """Return how many prompts a value holds; a list of numbers is one."""
    # A view: a prompt may have many megabytes.
    text = memoryview(raw)
    if _LISTED.match(text) is None:
        return int(_NULL.fullmatch(text) is None)
    if len(text) <= LARGE:
        return len(_LIST.decode(text))
    # Of an item beyond these nothing is made: there may be millions.
    return sum(len(memoryview(item)) > 0 for item in msgspec.structs.astuple(_FIRST.decode(text)))
