"""What every engine and every wire format share: a request, and the deltas that answer it.

The structs cross process borders, so each is a msgspec struct written as an array: fields are
positional on the wire and may only be appended. Both sides run the same copy of this package.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar, Final, Literal, cast

import msgspec
from msgspec.structs import replace

FinishReason = Literal["stop", "length", "abort", "error"]
_ERROR_EVENT: Final = re.compile(
    rb'(?:\A|\n)(?:data: ?\{"error":(?! ?null)|event: ?(?:error|response\.failed)\r?\n)'
)
_CUT_SHORT: Final = re.compile(
    rb'"(?:finish|stop)_reason": ?"(?:length|max_tokens)"|"reason": ?"max_output_tokens"'
)
_END_BYTES: Final = 8192
"""Of what may be an error and the end of a stream; a whole answer has many times as much."""


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How to pick tokens. `None` means the default of the model, then of the engine."""

    max_tokens: int = 16
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    bad_words: tuple[str, ...] = ()
    truncate_prompt_tokens: int | None = None
    extra: dict[str, Any] = {}
    """Parameters only this engine knows, under the engine's own names."""


class Continuation(msgspec.Struct, frozen=True, array_like=True):
    """What the client of a stream has of its answer, whose worker is gone.

    The worker that resumes makes all of the answer again, up to here from the ids, and sends what
    follows.
    """

    ids: bytes
    """Of the tokens so far (`token_ids.pack`)."""
    num_lines: int = 0
    """Of a body's answer: the lines of its server-sent events so far."""
    head: bytes = b""
    """Of a body's answer: how it begins."""
    cumulative_logprob: float | None = None
    names: bytes = b""
    """Of a response: what its events have named so far (`clients/responses.py`)."""
    num_cached_tokens: int | None = None
    """Of the prompt, those that the first worker had in its cache."""


class GenerateRequest(msgspec.Struct, frozen=True, array_like=True):
    """One prompt to continue."""

    prompt: str | tuple[int, ...]
    """Text, or the token ids of a caller that tokenises itself."""
    sampling: Sampling = Sampling()
    stream: bool = True
    """False lets the engine hold its output back until the end: one delta, least work."""
    adapter: str = ""
    """Name of a LoRA adapter; empty for the base model."""
    priority: int = 0
    trace_headers: dict[str, str] = {}
    n: int = 1
    """Answers wanted to the prompt."""
    logprobs: int | None = None
    """Alternatives wanted for each token, 0 for the token alone; None for no tokens in deltas."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt, which come with the first delta."""
    images: tuple[bytes, ...] = ()
    """Files of the images the prompt speaks of, in its order."""
    continuation: Continuation | None = None
    """Where to resume; None to begin."""


class HttpRequest(msgspec.Struct, frozen=True, array_like=True):
    """A body the engine, or the user's own code, reads and answers itself."""

    path: str
    """Where an HTTP server would have got it: /v1/chat/completions, /invocations …"""
    body: bytes
    headers: dict[str, str] = {}
    continuation: Continuation | None = None
    """Where to resume; None to begin."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """A token of an answer or of a prompt."""

    id: int
    text: str
    logprob: float | None = None
    """Natural logarithm of its probability; None for a prompt's first token."""
    rank: int | None = None
    """Its rank among all tokens by probability, from 1."""
    is_special: bool = False
    """Whether the tokenizer knows it as special, such as the end of text."""
    top: tuple[Token, ...] = ()
    """The most likely tokens at its position, best first."""
    added: str | None = None
    """What it adds to the answer's text, where a stop string may hold that back."""


CHUNK_BYTES: Final = 400
"""About what a chunk takes in addition to its text, or a token of it with its logprobs."""


class Delta(msgspec.Struct, array_like=True, tag=1):
    """What one engine step, or several merged ones, added to an answer.

    The last delta of an answer, and only that, has a finish reason.
    """

    text: str = ""
    num_tokens: int = 0
    """Tokens generated since the delta before."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id at which the answer stopped, if there was one."""
    num_prompt_tokens: int = 0
    """Length of the prompt in tokens; given with every delta."""
    index: int = 0
    """Which answer: those to the first prompt come first, `n` of them, then the next prompt's."""
    tokens: tuple[Token, ...] = ()
    """The tokens, if the request wants them."""
    prompt_tokens: tuple[Token, ...] = ()
    """The prompt's tokens, if the request wants them; with the first delta."""
    cumulative_logprob: float | None = None
    """Sum of the logarithms of all tokens so far, if the request wants tokens."""
    decode_seconds: float | None = None
    """From the first token to the last of an answer that comes whole, where the engine tells."""
    ids: bytes = b""
    """The ids of these tokens (`token_ids.pack`), from an engine that can resume from them;
    the stub keeps them."""
    num_cached_tokens: int | None = None
    """Of the prompt, those found in the prefix cache; with the first delta, where the engine
    tells."""

    @property
    def is_last(self) -> bool:
        """Whether its answer is over."""
        return self.finish_reason is not None

    @property
    def memory(self) -> int:
        """Bytes that it takes while it waits to be read, about."""
        return len(self.text) + CHUNK_BYTES * (1 + len(self.tokens) + len(self.prompt_tokens))

    def merge(self, later: Delta) -> None:
        """Append `later`, so that both travel in one response."""
        self.text += later.text
        self.num_tokens += later.num_tokens
        self.finish_reason = later.finish_reason
        self.stop_reason = later.stop_reason
        self.num_prompt_tokens = later.num_prompt_tokens
        self.tokens += later.tokens
        self.prompt_tokens += later.prompt_tokens
        self.cumulative_logprob = later.cumulative_logprob
        self.decode_seconds = later.decode_seconds
        self.ids += later.ids
        if self.num_cached_tokens is None:
            self.num_cached_tokens = later.num_cached_tokens


class HttpChunk(msgspec.Struct, array_like=True, tag=2):
    """A chunk of the answer to an `HttpRequest`."""

    index: ClassVar[int] = 0
    decode_seconds: ClassVar[None] = None
    data: bytes = b""
    """What an HTTP server would write next."""
    is_last: bool = False
    status: int = 200
    """HTTP status; the first chunk's counts."""
    headers: dict[str, str] = {}
    """HTTP headers, names in lower case; the first chunk's count."""
    num_tokens: int = 0
    """Tokens generated since the chunk before, as far as they are known."""
    num_prompt_tokens: int = 0
    ids: bytes = b""
    """The ids of what was generated for it (`token_ids.pack`), from an engine that can resume from
    them; the stub keeps them."""
    num_cached_tokens: int | None = None
    """See `Delta`."""

    @property
    def memory(self) -> int:
        """Bytes that it takes while it waits to be read, about."""
        return CHUNK_BYTES + len(self.data)

    def merge(self, later: HttpChunk) -> None:
        """Append `later`, so that both travel in one response."""
        self.data += later.data
        self.is_last = later.is_last
        self.num_tokens += later.num_tokens
        self.num_prompt_tokens = later.num_prompt_tokens
        self.ids += later.ids
        if self.num_cached_tokens is None:
            self.num_cached_tokens = later.num_cached_tokens


def reports_error(events: bytes) -> bool:
    """Return whether an engine's own server closes OpenAI's or Anthropic's events with an error."""
    return _ERROR_EVENT.search(events[-_END_BYTES:]) is not None


def is_cut_short(answer: bytes) -> bool:
    """Return whether an answer stopped at its longest, as any client is told it."""
    return _CUT_SHORT.search(answer[-_END_BYTES:]) is not None


Chunk = Delta | HttpChunk
"""A chunk of any answer."""


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Return chunks of one answer and kind as one: as `merge`, without copying each twice."""
    first, last = chunks[0], chunks[-1]
    if first is last:
        return first
    num_tokens, ids = sum(each.num_tokens for each in chunks), b"".join(each.ids for each in chunks)
    if isinstance(first, HttpChunk):
        data = b"".join(each.data for each in chunks)  # type: ignore[union-attr]
        return replace(
            last,
            data=data,
            status=first.status,
            headers=first.headers,
            num_tokens=num_tokens,
            ids=ids,
            num_cached_tokens=first.num_cached_tokens,
        )
    deltas = cast("Sequence[Delta]", chunks)
    return replace(
        last,
        text="".join(each.text for each in deltas),
        num_tokens=num_tokens,
        tokens=tuple(chain.from_iterable(each.tokens for each in deltas)),
        prompt_tokens=tuple(chain.from_iterable(each.prompt_tokens for each in deltas)),
        ids=ids,
        num_cached_tokens=first.num_cached_tokens,
    )
