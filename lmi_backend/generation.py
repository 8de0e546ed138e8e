"""The words every engine and every wire format share: a request, and the deltas that answer it.

The structs cross process borders, so each is a msgspec struct in array form: fields are
positional on the wire and may only be appended. Both ends run the same copy of this package.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FinishReason = Literal["stop", "length", "abort", "error"]


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


class GenerateRequest(msgspec.Struct, frozen=True, array_like=True):
    """One prompt to continue."""

    prompt: str
    sampling: Sampling = Sampling()
    stream: bool = True
    """False lets the engine hold its output back until the end: one delta, least work."""
    adapter: str = ""
    """Name of a LoRA adapter; empty for the base model."""
    priority: int = 0
    trace_headers: dict[str, str] = {}


class Delta(msgspec.Struct, array_like=True):
    """What one engine step, or several merged ones, added to an answer.

    The last delta of a request, and only that, has a finish reason.
    """

    text: str = ""
    num_tokens: int = 0
    """Tokens generated since the delta before."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id that ended the answer, if one did."""
    num_prompt_tokens: int = 0
    """Length of the prompt in tokens; given with every delta."""

    def merge(self, later: Delta) -> None:
        """Append `later`, so that both travel in one response."""
        self.text += later.text
        self.num_tokens += later.num_tokens
        self.finish_reason = later.finish_reason
        self.stop_reason = later.stop_reason
        self.num_prompt_tokens = later.num_prompt_tokens
