"""What stub and worker say of an engine that runs: what it can do, what it does."""

from __future__ import annotations

from typing import Final

import msgspec

OPTION_PREFIX: Final = "option."
"""What the reason begins with of a fast path that an option of the user's turns off."""


def fast_path_state(why_off: str) -> str:
    """Return what a fast path is: `private` if it is in use, else who turned it off.

    `chosen` is an option of the user's, `public` a vLLM that is not as expected.
    """
    if not why_off:
        return "private"
    return "chosen" if why_off.startswith(OPTION_PREFIX) else "public"


class Capabilities(msgspec.Struct, frozen=True, array_like=True):
    """What a started engine reports of itself."""

    engine: str
    version: str
    max_model_len: int
    """Longest prompt plus answer, in tokens."""
    longest_token: int = 0
    """Characters of the longest token; 0 if it is not known."""


class EngineStats(msgspec.Struct, frozen=True, array_like=True):
    """The engine's own view of its load."""

    running: int = 0
    """Requests it generates for."""
    waiting: int = 0
    """Requests it holds back."""
    kv_cache_usage: float = 0.0
    """Share of KV-cache blocks in use, 0 to 1."""
    steps: int | None = None
    """Steps made since the start; None from an engine that does not count them."""
    prompt_tokens_looked_up: int = 0
    """Prompt tokens since the start that were looked for in the prefix cache."""
    prompt_tokens_cached: int = 0
    """Of these, found there."""
    tokens_drafted: int = 0
    """Tokens since the start that speculation proposed."""
    tokens_accepted: int = 0
    """Of these, kept."""
    kv_block_size: int = 0
    """Tokens that a KV-cache block holds; 0 from an engine that does not say."""
    kv_blocks: int = 0
    """KV-cache blocks it has."""
    max_adapters: int = 0
    """LoRA adapters for which it generates at once; 0 where LoRA is off, or it does not say."""
    running_adapters: tuple[str, ...] = ()
    """LoRA adapters for which it generates."""
    waiting_adapters: tuple[str, ...] = ()
    """LoRA adapters of the requests that it holds back."""
    copies: tuple[tuple[int, int], ...] = ()
    """Of each copy of a data-parallel engine: its steps, and the requests it has. Empty from an
    engine that runs one copy."""
    fast_paths: tuple[tuple[str, str, str], ...] = ()
    """Of each fast path of the engine: its name, why it is off, and what that costs; both are empty
    for one that is in use. `fast_path_state` says who turned it off."""
