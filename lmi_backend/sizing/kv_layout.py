"""How vLLM lays out the cache: layers of a kind share blocks, and all blocks are of one size.

DeepSeek-V4 keeps windows, compressed text, and what is still to be compressed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.kv_layers import FEW, MANY

if TYPE_CHECKING:
    from lmi_backend.sizing.kv_layers import CompressedLayers
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Release, Step


_WIDER_GROUPS: Final[Release] = (0, 18)
_IN_FLIGHT: Final[Release] = (0, 26)
_CHECKPOINTS: Final[Release] = (0, 32)
# vLLM's kernels take blocks of a multiple of so many tokens.
_KERNEL_BLOCK = 16
_LATENT_BLOCK = 128
_LATENT_ALIGNED: Final[Release] = (0, 28)
_LENGTHS = range(1 << 40)
"""Of sequences: more than anybody has, as windows hold any length."""


@dataclass(frozen=True, kw_only=True)
class KvLayout:
    """Blocks of the cache on one device."""

    block_size: int
    """Tokens of one block of attention; of the smaller blocks where there are two kinds."""
    full_block: int
    """Tokens of a block of layers that see the whole text."""
    block_bytes: int
    """Of a block of all layers of a group; 0 if the model keeps no cache."""
    full_groups: int
    """Groups of layers whose cache grows with the text."""
    local_groups: int = 0
    """Groups of layers that keep a window."""
    local_tokens: int = 0
    """Most tokens that such a group keeps of one sequence while it is computed."""
    state_blocks: int = 0
    """Blocks of one sequence for the layers with a state."""
    groups: int = 1
    local_block: int = 0
    """Tokens of a block of layers that keep a window; 0 if it has as many as `block_size`."""
    further: tuple[tuple[int, int], ...] = ()
    """Groups of other windows: the most tokens of each, and the tokens of its blocks."""

    @property
    def is_uniform(self) -> bool:
        """Whether all layers share blocks."""
        return self.groups == 1 and not self.local_groups

    def blocks_for(self, length: int) -> int:
        """Return the blocks that one sequence of so many tokens takes at most."""
        full = self.full_groups * math.ceil(length / self.full_block)
        # A window may begin in the middle of a block.
        window = (
            math.ceil(min(self.local_tokens, length) / (self.local_block or self.block_size)) + 1
        )
        further = sum(math.ceil(min(most, length) / size) + 1 for most, size in self.further)
        return max(1, full + self.local_groups * window + self.state_blocks + further)

    def longest(self, num_blocks: int) -> int:
        """Return the tokens of the longest sequence that so many blocks hold."""
        return max(0, bisect_right(_LENGTHS, num_blocks, key=self.blocks_for) - 1)

    def tokens(self, num_blocks: int, length: int) -> int:
        """Return the tokens of all sequences of this length that fit at once."""
        if length == 1 and self.is_uniform:
            # No length is known.
            return num_blocks * self.block_size
        return num_blocks * length // self.blocks_for(length)


@dataclass(frozen=True, kw_only=True)
class CacheSizes:
    """Bytes that one layer takes on one device."""

    token: float
    """For a token, in most layers."""
    full_token: float
    """For a token, in layers that see the whole text."""
    state: int = 0
    """For a sequence, in layers with a state."""


def kv_layout(
    facts: ModelFacts,
    step: Step,
    *,
    layers: int,
    sizes: CacheSizes,
    block_size: int,
) -> KvLayout:
    """Return the layout of the cache on a device with so many of the layers.

    Args:
        block_size: tokens of a block; more where a state needs it, as all pages are of one size.
    """
    cache = facts.cache
    local = cache.local.layers
    kinds = (cache.layers - local, local, cache.states.layers)
    if not cache.layers:
        return _layout_of_states(facts, layers, sizes.state, block_size)
    if sizes.state and cache.states.layers:
        is_latent = cache.is_mla and step.release >= _LATENT_ALIGNED
        unit = max(_LATENT_BLOCK if is_latent else _KERNEL_BLOCK, block_size)
        block_size = max(block_size, math.ceil(sizes.state / (unit * sizes.token)) * unit)
    # All pages are of one size: where a token takes less, a block has more of them.
    larger = max(sizes.token, sizes.full_token) if local else sizes.full_token
    full_block = int(larger / sizes.full_token) * block_size
    size = _group_size([count for count in kinds if count], step)
    full, windows, states = (math.ceil(count / size) for count in kinds)
    # Layers of a kind are spread evenly over the stages.
    on_device = math.ceil(size * layers / facts.shape.num_layers)
    return KvLayout(
        block_size=block_size,
        full_block=full_block,
        block_bytes=math.ceil(block_size * larger * on_device),
        full_groups=full,
        local_groups=windows,
        local_tokens=_window_tokens(facts, step) if local else 0,
        state_blocks=states * (_states_of_sequence(facts, step) + facts.drafted_tokens),
        groups=full + windows + states,
        local_block=int(larger / sizes.token) * block_size if local else 0,
    )


def _layout_of_states(facts: ModelFacts, layers: int, state: int, block_size: int) -> KvLayout:
    """Return the layout without attention: a block is the state of a sequence in all layers."""
    return KvLayout(
        block_size=block_size,
        full_block=block_size,
        block_bytes=state * math.ceil(facts.cache.states.layers * layers / facts.shape.num_layers),
        full_groups=0,
        state_blocks=1 + facts.drafted_tokens,
    )


def _states_of_sequence(facts: ModelFacts, step: Step) -> int:
    """Return the states of a sequence: with prefix caching that of the last block's edge, too."""
    if not step.caches_states:
        return 1
    return 3 if facts.cache.states.checkpoints and step.release >= _CHECKPOINTS else 2


def _group_size(kinds: list[int], step: Step) -> int:
    """Return the layers of each group: the rarest kind's number, unless the others are few."""
    rarest, most = min(kinds), max(kinds)
    return most if most < rarest * (1.5 if step.release >= _WIDER_GROUPS else 1.25) else rarest


def _window_tokens(facts: ModelFacts, step: Step) -> int:
    """Return the tokens that a layer with a window keeps, those of steps that overlap among them.

    What one of these still computes is not free yet.
    """
    local = facts.cache.local
    return local.window - (not local.is_chunked) + _tokens_in_flight(step)


def _tokens_in_flight(step: Step) -> int:
    return step.tokens * (2 if step.release >= _IN_FLIGHT else 1)


_MODEL_BYTES: Final = 2
"""Of a number of the states of convolutions, which have the model's 16 bits."""


def cache_sizes(facts: ModelFacts, tensor: int, dtype_bytes: float) -> CacheSizes:
    """Return what a layer takes for a token, or of a state for a sequence.

    Args:
        dtype_bytes: of a cached number of attention.
    """
    states, wide = facts.cache.states, facts.cache.wide
    convolved = states.convolved + facts.drafted_tokens * states.channels
    state = states.numbers * (states.bytes_each or _MODEL_BYTES) + convolved * _MODEL_BYTES
    values = _values_per_device(facts, tensor)
    full = 2 * wide.head_dim * max(1, wide.kv_heads // tensor) if wide else values
    return CacheSizes(
        token=values * dtype_bytes + facts.cache.index_bytes,
        full_token=full * dtype_bytes + facts.cache.index_bytes,
        state=math.ceil(state / tensor),
    )


def _values_per_device(facts: ModelFacts, tensor: int) -> int:
    """Return the numbers a layer caches for one token on one device."""
    if facts.cache.is_mla:
        # All heads read the same latent vector, so each device needs it whole.
        return facts.cache.values
    per_head = facts.cache.values // facts.shape.num_kv_heads
    return per_head * max(1, facts.shape.num_kv_heads // tensor)


_BLOCK: Final = 256
"""Tokens of a block of compressed text."""
_WINDOW_BLOCK: Final = 64
_VECTOR: Final = 584
"""Bytes of a vector with its rotations and scales."""
_ALIGNED: Final = 576


def compressed_layout(
    facts: ModelFacts, compressed: CompressedLayers, step: Step, layers: int
) -> KvLayout:
    """Return the layout of the cache on a device with so many of the layers.

    The layers' text shares a block; their windows are divided into groups that are no larger.
    """
    share = layers / facts.shape.num_layers
    few, many = (math.ceil(count * share) for count in (compressed.few, compressed.many))
    vectors = _BLOCK // FEW
    of_few = _aligned(vectors * _VECTOR) + _aligned(vectors * compressed.index_bytes)
    text = few * of_few + many * _aligned(_BLOCK // MANY * _VECTOR)
    window = _aligned(_WINDOW_BLOCK * _VECTOR)
    block = max(text, window)
    groups = math.ceil(layers * window / block)
    flight = _tokens_in_flight(step)
    # Tokens wait for their compression: where it overlaps, twice as many.
    waiting = [
        (seen - 1 + flight, size)
        for seen, size, count in ((2 * FEW, 4, few), (MANY, 8, many))
        if count
    ]
    return KvLayout(
        block_size=_BLOCK,
        full_block=_BLOCK,
        block_bytes=block,
        full_groups=1 if text else 0,
        local_groups=groups,
        local_tokens=_window_tokens(facts, step),
        local_block=_WINDOW_BLOCK,
        further=tuple(waiting),
        groups=groups + len(waiting) + 1,
    )


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNED) * _ALIGNED
