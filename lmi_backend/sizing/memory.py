"""How much of a device's memory the weights take, and how many tokens the rest can cache."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.errors import ConfigurationError
from lmi_backend.printable import GIB
from lmi_backend.sizing.kv_layout import KvLayout, cache_sizes, compressed_layout, kv_layout
from lmi_backend.sizing.quantization import MXFP4_BITS
from lmi_backend.sizing.step import (
    GRAPHS_DEDUCTED,
    HOPPER,
    NEWEST,
    Release,
    cuda_graphs,
    deducted_buffers,
    deducts_graphs,
    graph_bytes,
    non_torch,
    peak_activation,
)
from lmi_backend.sizing.weights import COMPUTED

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import Draft, ModelFacts
    from lmi_backend.sizing.step import Step


_MODEL_BYTES: Final = 2
"""Rotations of the positions are kept in the model's 16 bits."""
_MARLIN: Final = (128, 256)
"""Multiples to which vLLM widens MXFP4's experts, and their hidden vectors, for most kernels."""
_TRITON: Final = (256, 1)
"""The same for Triton's, which it took on Hopper."""
_LAST_TRITON: Final[Release] = (0, 18)


def stage_weights(
    facts: ModelFacts, stages: list[int], tensor: int, step: Step, scale: float
) -> list[int]:
    """Return the bytes of weights on one device of each stage.

    Most of a layer is split. Norms, routers and what makes latent vectors are whole on each device,
    and of keys and values there are as many parts as KV heads. The rotations of all positions are
    whole on each, too: for ten million they take 2.5 GiB.
    """
    shape = facts.shape
    matrix = facts.matrices if shape.ties_embeddings else facts.matrices / 2
    whole = facts.weights.total - facts.matrices
    layer = _layer_weights(facts, whole, tensor, step) / shape.num_layers
    sizes = [layers * layer for layers in stages]
    sizes[0] += matrix / tensor
    # A tied matrix is there once more if the head is on another device.
    if not shape.ties_embeddings or len(stages) > 1:
        sizes[-1] += matrix / tensor
    rotations = (
        0
        if facts.cache.is_mla
        else shape.max_position_embeddings * (shape.rotated or shape.head_dim)
    )
    taken = [math.ceil(size * scale) + rotations * _MODEL_BYTES for size in sizes]
    if facts.draft is not None:
        taken[-1] += math.ceil(facts.draft.weight_bytes / tensor)
    return taken


def _layer_weights(facts: ModelFacts, total: float, tensor: int, step: Step) -> float:
    """Return the bytes on one device of all layers together."""
    whole = min(facts.weights.whole, total)
    keys = min(facts.weights.keys, total - whole)
    split = total - whole - keys + facts.weights.unfolding + _expert_padding(facts, tensor, step)
    return whole + keys / min(tensor, facts.shape.num_kv_heads) + split / tensor


def _expert_padding(facts: ModelFacts, tensor: int, step: Step) -> float:
    """Return the bytes of all devices by which vLLM widens MXFP4's experts for its kernels."""
    shape = facts.shape
    if shape.quantization != "mxfp4" or not shape.num_experts:
        return 0
    is_triton = step.capability // 10 == HOPPER // 10 and step.release <= _LAST_TRITON
    widths, hiddens = _TRITON if is_triton else _MARLIN
    width = shape.expert_intermediate_size / tensor
    padded = math.ceil(width / widths) * widths * math.ceil(shape.hidden_size / hiddens) * hiddens
    added = padded - width * shape.hidden_size
    return 3 * shape.num_layers * shape.num_experts * added * tensor * MXFP4_BITS / 8


_PLAIN_SHARE: Final = 0.01
_QUANTISED_SHARE: Final = 0.05
"""Of computed weights: which modules are left out of a quantisation is not always written."""
_UNKNOWN_SHARE: Final = 0.1
"""Share of the weights of a class that is not known here."""
_LOGGED: Final = int(0.15 * GIB)
"""Where many logs of the same kind of device and release are known."""
_UNLOGGED: Final = GIB
_ACTIVATION_SHARE: Final = 0.35
_ENCODER_TOKENS: Final = 65536
"""Parts of an image in an encoder's trial run, at most."""
_ENCODER_WIDTHS: Final = 12
_TOWER: Final = 1152
"""The usual width of an encoder of images."""
_TRANSIENTS: Final[Release] = (0, 26)
"""From here on vLLM counts a trial run of gated delta nets among its graphs (vllm#50780)."""
_LARGE_BLACKWELL: Final[range] = range(100, 110)
_LARGE_GRAPHS: Final = 7 * GIB
"""B200 and its like: two graphs of a kind are measured and multiplied (vllm#45178)."""
_LOGGED_DEVICES: Final[range] = range(HOPPER, 100)
_LAST_LOGGED: Final[Release] = GRAPHS_DEDUCTED


def uncertainty(
    facts: ModelFacts, step: Step, weights: int, taken: tuple[int, int]
) -> tuple[int, int]:
    """Return the bytes by which the cache may be smaller and larger than estimated.

    Args:
        weights: their bytes on the device.
        taken: bytes of the activations and of the graphs.
    """
    shape = facts.shape
    share = 0.0
    if facts.weights.source == COMPUTED:
        is_plain = not shape.quantization and not shape.vision_parameters
        share = _PLAIN_SHARE if is_plain else _QUANTISED_SHARE
        share = _UNKNOWN_SHARE if facts.unknown_class else share
    unsure = int(weights * share)
    is_logged = step.release < _LAST_LOGGED and step.capability in _LOGGED_DEVICES
    is_usual = not facts.cache.states.layers and not shape.vision_parameters
    if is_logged and is_usual:
        return unsure + _LOGGED, unsure + _LOGGED
    activations, graphs = taken
    unsure += _UNLOGGED + int(_ACTIVATION_SHARE * activations) + graphs // 2
    encoder = _ENCODER_TOKENS * _ENCODER_WIDTHS * _TOWER * 2 if shape.vision_parameters else 0
    undeducted = 0 if deducts_graphs(facts, step) else graphs - graphs // 2
    lacking = 0
    if not graphs and step.release >= GRAPHS_DEDUCTED and not deducts_graphs(facts, step):
        # Of a first compilation, where the second runner deducts no graphs.
        lacking = graph_bytes(facts, step, layers=shape.num_layers)
    return unsure + encoder + lacking + _estimated(facts, step, taken), unsure + undeducted


def _estimated(facts: ModelFacts, step: Step, taken: tuple[int, int]) -> int:
    """Return by how much more vLLM's own estimate of its graphs may be than they take."""
    activations, graphs = taken
    if not graphs:
        return 0
    more = graphs if facts.drafted_tokens else 0
    if facts.cache.states.delta is not None and step.release >= _TRANSIENTS:
        more += activations
    return more + (_LARGE_GRAPHS if step.capability in _LARGE_BLACKWELL else 0)


UNSURE: Final = 0.15
"""Of these bytes: three logs of one model have 9 % more for each slot than is counted."""


def adapter_bytes(facts: ModelFacts, slots: int, *, tensor: int, pipeline: int) -> int:
    """Return the bytes of a device for all slots: attention, MLPs, experts, and the vocabulary.

    Each matrix has two of a low rank. Where the matrix is split by its output (queries, gates), the
    first is whole on each device. Where it is split by its input (the results of attention and
    MLP), the second is. A layer with a state counts as one with attention. Those of the embeddings
    and of the head are whole on each device that has them.

    Args:
        slots: bytes of all slots for each in- or output of a matrix.
    """
    shape = facts.shape
    hidden, split = shape.hidden_size, tensor
    queries = shape.num_heads * shape.head_dim / split
    keys = max(1, shape.num_kv_heads // split) * shape.head_dim
    attention = 3 * hidden + queries + queries + 2 * keys + hidden
    mlp = _gated(hidden, shape.intermediate_size / split) if shape.has_dense_layers else 0.0
    expert = _gated(hidden, shape.expert_intermediate_size / split) if shape.num_experts else 0.0
    layer = attention + max(mlp, shape.num_experts * expert)
    layers = -(-shape.num_layers // pipeline)
    ends = 2 if pipeline == 1 else 1
    numbers = layers * layer + ends * (shape.vocab_size + hidden)
    return int(numbers * slots)


def _gated(hidden: int, width: float) -> float:
    """Return in- and outputs of an MLP's three matrices."""
    return 2 * (hidden + width) + width + hidden


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
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        del plain["layout"], plain["draft"], plain["less"], plain["more"]
        plain["release"] = ".".join(map(str, self.release))
        return plain | {"num_blocks": self.num_blocks, "num_tokens": self.num_tokens}


@dataclass(frozen=True, kw_only=True)
class CacheKind:
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
        degrees: devices each layer is split over, and stages the layers are split into.
        budget: bytes of one device the engine may use.
        weight_scale: bytes of the weights in memory for each byte in `facts.weight_bytes`, for
            example 0.5 for float32 weights served as bfloat16.

    Raises:
        ConfigurationError: stages outnumber layers.
    """
    stages = _checked_stages(facts, degrees[1], step.partition)
    weights = stage_weights(facts, stages, degrees[0], step, weight_scale)
    estimates = []
    for index, taken in enumerate(weights):
        stage = _estimate_stage(facts, stages, index, degrees, cache, step)
        less, more = uncertainty(facts, step, taken, (stage.activations, stage.cuda_graphs))
        left = budget - taken - stage.step
        estimates.append(replace(stage, weights=taken, kv_cache=left, less=less, more=more))
    # All devices use as many blocks as the one with the fewest.
    return min(estimates, key=lambda estimate: (estimate.num_blocks, estimate.kv_cache))


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
    draft = facts.draft
    layout = _layout(facts, stages[index], tensor, cache, step)
    # Whether the cache of what drafts is counted.
    is_whole = layout.is_uniform or joins_layers(facts)
    if is_last:
        layout = with_draft(layout, draft, tensor, cache)
    return MemoryEstimate(
        weights=0,
        activations=peak_activation(
            facts, step, tensor=tensor, is_staged=pipeline > 1, samples=is_last
        ),
        overhead=non_torch(facts, step, tensor=tensor, pipeline=pipeline),
        cuda_graphs=cuda_graphs(facts, step, layers=stages[index]),
        buffers=deducted_buffers(facts, step) if is_last else 0,
        kv_cache=0,
        block_size=layout.block_size,
        block_bytes=layout.block_bytes,
        layout=layout,
        length=cache.length,
        release=step.release,
        draft=draft if draft is None or is_whole else draft.without_cache,
    )


def cache_layout(
    facts: ModelFacts, *, degrees: tuple[int, int], cache: CacheKind, step: Step
) -> KvLayout:
    """Return the layout of the cache on the device with the most layers.

    With it the space for the cache, given outright, is exactly so many blocks.

    Raises:
        ConfigurationError: stages outnumber layers.
    """
    layers = max(_checked_stages(facts, degrees[1], step.partition))
    layout = _layout(facts, layers, degrees[0], cache, step)
    return with_draft(layout, facts.draft, degrees[0], cache)


def _checked_stages(facts: ModelFacts, pipeline: int, partition: tuple[int, ...]) -> list[int]:
    """Return the layers of each stage: as they are written, else shared out as vLLM does it.

    The last stage gets the fewest, as it also has the head; then the first, for the embeddings.
    """
    shape = facts.shape
    if pipeline > shape.num_layers:
        problem = f"more stages than the model has layers ({shape.num_layers})"
        raise ConfigurationError(f"pipeline_parallel_degree={pipeline}: {problem}")
    if len(partition) == pipeline and sum(partition) == shape.num_layers:
        return list(partition)
    stages = [shape.num_layers // pipeline] * pipeline
    for index in range(2, shape.num_layers % pipeline + 2):
        stages[-index] += 1
    return stages


def _layout(facts: ModelFacts, layers: int, tensor: int, cache: CacheKind, step: Step) -> KvLayout:
    draft = facts.draft
    if draft is not None and joins_layers(facts):
        joined = replace(facts.cache, layers=facts.cache.layers + draft.layers)
        facts = replace(facts, cache=joined)
    if facts.cache.compressed:
        return compressed_layout(facts, facts.cache.compressed, step, layers)
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
    values = math.ceil(draft.layer_values / min(tensor, draft.kv_heads)) * draft.layers
    added = values * cache.dtype_bytes * layout.block_size / cache.ranks
    return replace(layout, block_bytes=layout.block_bytes + math.ceil(added))


def joins_layers(facts: ModelFacts) -> bool:
    """Tell whether what drafts has layers like the model's own, among layers of other kinds."""
    draft, wide = facts.draft, facts.cache.wide
    is_mixed = facts.cache.local.layers or facts.cache.states.layers
    if draft is None or not draft.layers or not is_mixed:
        return False
    own = facts.cache.values
    return draft.layer_values == (2 * wide.kv_heads * wide.head_dim if wide else own)
