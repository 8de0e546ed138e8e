"""What is asked of an engine's tokenizer alone, as bodies that no client sends itself."""

from __future__ import annotations

from typing import Final

import msgspec

ENCODE_PATH: Final = "/lmi/encode"
"""`Texts` to `Encoded`."""
DECODE_PATH: Final = "/lmi/decode"
"""`TokenIds` to a string."""
TOKEN_PATHS: Final = frozenset({ENCODE_PATH, DECODE_PATH})


class Texts(msgspec.Struct, frozen=True):
    """A prompt, and words that are to be banned or to end its answer."""

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
