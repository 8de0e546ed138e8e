"""What an engine's tokenizer does alone, and what no prompt can be."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lmi_backend.errors import RequestError

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
