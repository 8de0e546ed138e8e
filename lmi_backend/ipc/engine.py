"""What stub and worker say of an engine that runs: what it can do, what it does."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Histogram(msgspec.Struct, array_like=True):
    """Counts of values up to each of some ascending edges, and above the last.

    A value that equals an edge counts below it.
    """

    edges: tuple[int | float, ...]
    counts: list[int]
    total: float = 0.0
    """Sum of all values."""

    @classmethod
    def of(cls, edges: tuple[int | float, ...]) -> Histogram:
        return cls(edges, [0] * (len(edges) + 1))

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value that was seen so many times."""
        self.counts[bisect_left(self.edges, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Yield each edge, as Prometheus writes it, and how many values are not above it."""
        names = [*map(str, self.edges), "+Inf"]
        yield from zip(names, accumulate(self.counts), strict=True)

    def copy(self) -> Histogram:
        """Return one whose counts change by themselves."""
        return Histogram(self.edges, self.counts.copy(), self.total)


_EDGES: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300)


def histogram_of_seconds() -> Histogram:
    """Return an empty one, for the parts of a request's time."""
    return Histogram.of(_EDGES)


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
    preemptions: int = 0
    """Times since the start that it took a running request's memory for another."""
    queue_seconds: Histogram = msgspec.field(default_factory=histogram_of_seconds)
    """From a request's arrival in the engine to its first step."""
    prefill_seconds: Histogram = msgspec.field(default_factory=histogram_of_seconds)
    """From there to its first token."""
    decode_seconds: Histogram = msgspec.field(default_factory=histogram_of_seconds)
    """From there to its last one."""
