"""How much of a device's memory the weights take, and how many tokens the rest can cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from lmi_backend.errors import ConfigurationError
from lmi_backend.sizing.cache_sizes import cache_sizes
from lmi_backend.sizing.compressed import compressed_layout
from lmi_backend.sizing.draft import counted_draft, joins_layers
from lmi_backend.sizing.kv_groups import KvLayout, kv_layout
from lmi_backend.sizing.libraries import cuda_graphs, non_torch
from lmi_backend.sizing.stage_weights import stage_weights
from lmi_backend.sizing.step import NEWEST, Release, kept_buffers, peak_activation
from lmi_backend.sizing.uncertainty import uncertainty

if TYPE_CHECKING:
    from lmi_backend.sizing.draft import Draft
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Step


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes on the device of the group that can cache the fewest tokens."""

    weights: int
    activations: int
    """Peak of one step."""
    overhead: int
    """What the engine's libraries take outside PyTorch, NCCL's buffers among it."""
    cuda_graphs: int = 0
    """What is deducted for CUDA graphs."""
    buffers: int = 0
    """What is made before a step is tried and deducted too."""
    kv_cache: int
    """What is left of the budget; 0 or less if the model does not fit."""
    block_size: int
    """Tokens of one block."""
    block_bytes: int
    """Of all layers that share a block on the device; 0 if the model keeps no cache."""
    layout: KvLayout
    length: int = 1
    """Tokens of the longest sequence, where that is known."""
    release: Release = NEWEST
    draft: Draft | None = None
    """What drafts tokens and is counted too."""
    less: int = 0
    """Bytes by which the cache may be smaller than estimated."""
    more: int = 0
    """Bytes by which it may be larger."""

    @property
    def num_blocks(self) -> int:
        """Whole blocks that fit; 0 if the model does not fit or keeps no cache."""
        return max(self.kv_cache, 0) // self.block_bytes if self.block_bytes else 0

    @property
    def num_tokens(self) -> int:
        """Tokens that fit at once, of as many sequences of the greatest length as fit."""
        return self.layout.tokens(self.num_blocks, self.length)

    @property
    def logged_tokens(self) -> int:
        """Tokens that fit as the release of vLLM counts them in its log."""
        return self.layout.logged_tokens(self.num_blocks, self.length, self.release)

    @property
    def concurrency(self) -> float:
        """Sequences of the greatest length that fit at once."""
        return self.num_blocks / self.layout.blocks_for(self.length)

    @property
    def bounds(self) -> tuple[MemoryEstimate, MemoryEstimate]:
        """The estimate with the smallest and the largest cache, as far as the parts are known."""
        least = replace(self, kv_cache=self.kv_cache - self.less)
        return least, replace(self, kv_cache=self.kv_cache + self.more)

    @property
    def token_range(self) -> tuple[int, int]:
        """Fewest and most tokens that fit."""
        least, most = self.bounds
        return least.num_tokens, most.num_tokens

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that fits alone."""
        return self.layout.longest(self.num_blocks)

    @property
    def step(self) -> int:
        """Bytes that a step takes in addition to weights and cache."""
        return self.activations + self.buffers + self.overhead + self.cuda_graphs

    def as_dict(self) -> dict[str, object]:
        """Return it as plain values for JSON."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        del plain["layout"], plain["draft"], plain["less"], plain["more"]
        plain["release"] = ".".join(map(str, self.release))
        return plain | {"num_blocks": self.num_blocks, "num_tokens": self.num_tokens}


@dataclass(frozen=True, kw_only=True)
class CacheKind:
    """How an engine caches."""

    dtype_bytes: float
    """Bytes of one cached number, 2 for bfloat16, 1 for fp8."""
    block_size: int = 16
    """Tokens of a block."""
    length: int = 1
    """Tokens of the longest sequence, where that is known."""
    ranks: int = 1
    """Devices that have a part of each sequence's tokens."""


def estimate_memory(
    facts: ModelFacts,
    *,
    degrees: tuple[int, int],
    budget: int,
    cache: CacheKind,
    step: Step,
    weight_scale: float = 1.0,
) -> MemoryEstimate:
    """Estimate the memory of the device that has the least left for the KV cache.

    Args:
        facts: the model.
        degrees: devices each layer is split over, and stages the layers are split into.
        budget: bytes of one device the engine may use.
        cache: how it caches.
        step: what it computes at once, and on what.
        weight_scale: bytes of the weights in memory for each byte in `facts.weight_bytes`, for
            example 0.5 for float32 weights served as bfloat16.

    Raises:
        ConfigurationError: a degree or size is not positive, or stages outnumber layers.
    """
    stages = _checked_stages(facts, *degrees, step.partition)
    weights = stage_weights(facts, stages, degrees[0], step, weight_scale)
    estimates = [
        _estimate_stage(facts, stages, index, degrees, cache, step) for index in range(len(stages))
    ]
    estimates = [
        _with_weights(each, taken, budget, facts, step)
        for each, taken in zip(estimates, weights, strict=True)
    ]
    # All devices use as many blocks as the one with the fewest.
    return min(estimates, key=lambda estimate: (estimate.num_blocks, estimate.kv_cache))


def _with_weights(
    stage: MemoryEstimate, weights: int, budget: int, facts: ModelFacts, step: Step
) -> MemoryEstimate:
    less, more = uncertainty(facts, step, weights, (stage.activations, stage.cuda_graphs))
    left = budget - weights - stage.step
    return replace(stage, weights=weights, kv_cache=left, less=less, more=more)


def _estimate_stage(
    facts: ModelFacts,
    stages: list[int],
    index: int,
    degrees: tuple[int, int],
    cache: CacheKind,
    step: Step,
) -> MemoryEstimate:
    """Return what a device of one stage takes in addition to its weights."""
    tensor, pipeline = degrees
    is_last = index == pipeline - 1
    layout = _layout(facts, stages[index], tensor, cache, step)
    if is_last:
        layout = with_draft(layout, facts.draft, tensor, cache)
    return MemoryEstimate(
        weights=0,
        activations=peak_activation(
            facts, step, tensor=tensor, is_staged=pipeline > 1, samples=is_last
        ),
        overhead=non_torch(facts, step, tensor=tensor, pipeline=pipeline),
        cuda_graphs=cuda_graphs(facts, step, layers=stages[index]),
        buffers=kept_buffers(facts, step) if is_last else 0,
        kv_cache=0,
        block_size=layout.block_size,
        block_bytes=layout.block_bytes,
        layout=layout,
        length=cache.length,
        release=step.release,
        draft=counted_draft(facts, layout),
    )


def cache_layout(
    facts: ModelFacts, *, degrees: tuple[int, int], cache: CacheKind, step: Step
) -> KvLayout:
    """Return the layout of the cache on the device with the most layers.

    With it the space for the cache, given outright, is exactly so many blocks.

    Raises:
        ConfigurationError: a degree or size is not positive, or stages outnumber layers.
    """
    layers = max(_checked_stages(facts, *degrees, step.partition))
    layout = _layout(facts, layers, degrees[0], cache, step)
    return with_draft(layout, facts.draft, degrees[0], cache)


def _checked_stages(
    facts: ModelFacts, tensor: int, pipeline: int, partition: tuple[int, ...]
) -> list[int]:
    """Return the layers of each stage: as they are written, else shared out as vLLM does it.

    The last stage gets the fewest, as it also has the head; then the first, for the embeddings.
    """
    _check_positive(tensor_parallel_degree=tensor, pipeline_parallel_degree=pipeline)
    if pipeline > facts.num_layers:
        problem = f"more stages than the model has layers ({facts.num_layers})"
        raise ConfigurationError(f"pipeline_parallel_degree={pipeline}: {problem}")
    if len(partition) == pipeline and sum(partition) == facts.num_layers:
        return list(partition)
    stages = [facts.num_layers // pipeline] * pipeline
    for index in range(2, facts.num_layers % pipeline + 2):
        stages[-index] += 1
    return stages


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if number <= 0:
            raise ConfigurationError(f"{name}={number} is not positive")


def _layout(facts: ModelFacts, layers: int, tensor: int, cache: CacheKind, step: Step) -> KvLayout:
    _check_positive(block_size=cache.block_size, kv_dtype_bytes=cache.dtype_bytes)
    draft = facts.draft
    if draft is not None and joins_layers(facts):
        facts = replace(facts, num_kv_layers=facts.num_kv_layers + draft.layers)
    if facts.compressed:
        return compressed_layout(facts, facts.compressed, step, layers)
    sizes = cache_sizes(facts, tensor, cache.dtype_bytes)
    layout = kv_layout(facts, step, layers=layers, sizes=sizes, block_size=cache.block_size)
    if not layout.is_uniform:
        return layout
    # A block has as many tokens on each of them.
    size, full = layout.block_size * cache.ranks, layout.full_block * cache.ranks
    return replace(layout, block_size=size, full_block=full)


def with_draft(layout: KvLayout, draft: Draft | None, tensor: int, cache: CacheKind) -> KvLayout:
    """Return the layout with the layers of what drafts, where all layers share blocks."""
    if draft is None or not layout.is_uniform or not layout.block_bytes:
        return layout
    added = draft.token_values(tensor) * cache.dtype_bytes * layout.block_size / cache.ranks
    return replace(layout, block_bytes=layout.block_bytes + math.ceil(added))
