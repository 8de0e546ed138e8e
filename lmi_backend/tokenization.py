"""What an engine's tokenizer does alone, and what no prompt can be.

Token ids are bytes: small to keep, quick to append, and grouped as the engine gave them. An id
takes four bytes, little end first, as on every machine that Triton runs on. The top bit marks the
last id of a group, which is one output of an engine. Groups that are appended to each other stay
apart.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lmi_backend.errors import RequestError

ID_BYTES: Final = 4
_LAST: Final = 1 << 31
_TYPE: Final = "I"


def pack(ids: Sequence[int]) -> bytes:
    """Return a group of ids, each below 2^31, as bytes; nothing for none."""
    if len(ids) == 1:
        return (ids[0] | _LAST).to_bytes(ID_BYTES, "little")
    if not ids:
        return b""
    packed = array(_TYPE, ids)
    packed[-1] |= _LAST
    return packed.tobytes()


def unpack(data: bytes) -> list[list[int]]:
    """Return the groups that were packed; the last one may have no end."""
    packed = array(_TYPE)
    packed.frombytes(data)
    groups: list[list[int]] = [[]]
    for number in packed:
        groups[-1].append(number & ~_LAST)
        if number & _LAST:
            groups.append([])
    return groups if groups[-1] else groups[:-1]


ENCODE_PATH: Final = "/lmi/encode"
"""`Texts` to `Encoded`."""
DECODE_PATH: Final = "/lmi/decode"
"""`TokenIds` to a string."""
SPANS_PATH: Final = "/lmi/spans"
"""`Spanning` to `Spans`."""
TOKEN_PATHS: Final = frozenset({ENCODE_PATH, DECODE_PATH, SPANS_PATH})


class Texts(msgspec.Struct, frozen=True):
    """A prompt, and texts that are banned or stop its answer."""

    text: str
    bad: list[str] = []
    stop: list[str] = []


class Encoded(msgspec.Struct, frozen=True):
    """Their tokens, and the tokenizer's own ids; -1 for none."""

    ids: list[int]
    bad: list[list[int]]
    stop: list[list[int]]
    end_id: int
    pad_id: int


class TokenIds(msgspec.Struct, frozen=True):
    """Tokens whose text is wanted."""

    ids: list[int]


class Spanning(msgspec.Struct, frozen=True):
    """A text whose tokens are wanted, with the place of each."""

    text: str = ""
    special: bool = True
    """Whether the tokenizer puts the model's special tokens around it."""
    chat: dict[str, Any] | None = None
    """OpenAI's body of a chat, which the model's template turns into the text."""


class Span(msgspec.Struct, frozen=True):
    """A token, and its place in the text, in characters."""

    id: int
    text: str = ""
    start: int = 0
    stop: int = 0


class Spans(msgspec.Struct, frozen=True):
    """A text and its tokens; a token that is not part of the text has no place in it."""

    text: str
    tokens: list[Span]


def check_characters(number: int, max_model_len: int, longest: int, *, field: str) -> None:
    """Raise RequestError for more characters than the tokens of a prompt can have.

    Args:
        max_model_len: longest prompt plus answer, in tokens; 0 if it is not known.
        longest: characters of the longest token; 0 if it is not known.
    """
    if (most := max_model_len * longest) and number > most:
        accepted = f"at most {most}: {max_model_len} tokens of at most {longest} each"
        accepted = f"{accepted}. {context_length(max_model_len)}"
        raise RequestError(f"has {number} characters", field=field, accepted=accepted)


def context_length(tokens: int) -> str:
    """Return OpenAI's sentence, by which clients know that a shorter prompt helps."""
    return f"This model's maximum context length is {tokens} tokens"
