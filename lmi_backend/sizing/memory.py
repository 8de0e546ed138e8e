"""How much of a device's memory the weights take, and how many tokens the rest can cache."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmi_backend.errors import ConfigurationError
from lmi_backend.sizing.weights import DTYPE_BYTES
from lmi_backend.units import GIB

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import ModelFacts

GPU_OVERHEAD = GIB
"""Bytes of a GPU's budget for CUDA graphs, NCCL's buffers and what allocation loses.

A round figure, not a measurement. The CUDA context is not in it: vLLM counts what is used up
from a snapshot of the free memory on, which it takes when the context exists.
"""

# Activations are 16-bit numbers whatever the weights are.
_ACTIVATION_BYTES = 2
# Per number of the vocabulary: the gathered logits in 16 bits, then in the sampler their copy and
# their probabilities as float32. vLLM gathers the whole vocabulary on every device.
_LOGIT_BYTES = 2 + 4 + 4


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes on the device of the group that can cache the fewest tokens."""

    weights: int
    activations: int
    """Peak of one step."""
    overhead: int
    kv_cache: int
    """What is left of the budget; 0 or less if the model does not fit."""
    block_size: int
    """Tokens of one block."""
    block_bytes: int
    """Of all layers on the device; 0 if the model keeps no cache."""

    @property
    def num_blocks(self) -> int:
        """Whole blocks that fit; 0 if the model does not fit or keeps no cache."""
        return max(self.kv_cache, 0) // self.block_bytes if self.block_bytes else 0

    @property
    def num_tokens(self) -> int:
        """Tokens that fit at once, of all running requests together."""
        return self.num_blocks * self.block_size


def estimate_memory(  # noqa: PLR0913  all but one by name
    facts: ModelFacts,
    *,
    tensor: int,
    pipeline: int,
    budget: int,
    kv_dtype_bytes: float,
    block_size: int = 16,
    max_batched_tokens: int,
    max_sequences: int,
    weight_scale: float = 1.0,
    overhead: int = GPU_OVERHEAD,
) -> MemoryEstimate:
    """Estimate the memory of the device that has the least left for the KV cache.

    Args:
        facts: the model.
        tensor: devices each layer is split over.
        pipeline: stages the layers are split into.
        budget: bytes of one device the engine may use.
        kv_dtype_bytes: bytes of one cached number, 2 for bfloat16, 1 for fp8.
        block_size: tokens of a KV cache block.
        max_batched_tokens: tokens of one step.
        max_sequences: sequences of one step, one row of logits each.
        weight_scale: bytes of the weights in memory for each byte in `facts.weight_bytes`, for
            example 0.5 for float32 weights served as bfloat16.
        overhead: bytes for what is neither weights, activations nor cache; 0 on a CPU.

    Raises:
        ConfigurationError: a degree or size is not positive, or stages outnumber layers.
    """
    stages = _checked_stages(facts, tensor, pipeline)
    _check_positive(block_size=block_size, kv_dtype_bytes=kv_dtype_bytes)
    activations = _activations(facts, tensor, max_batched_tokens, max_sequences)
    weights = _stage_weights(facts, stages, tensor, weight_scale)
    estimates = [
        MemoryEstimate(
            weights=stage_weights,
            activations=activations,
            overhead=overhead,
            kv_cache=budget - stage_weights - activations - overhead,
            block_size=block_size,
            block_bytes=_block_bytes(facts, layers, tensor, kv_dtype_bytes, block_size),
        )
        for layers, stage_weights in zip(stages, weights, strict=True)
    ]
    # All devices use as many blocks as the one with the fewest.
    return min(estimates, key=lambda estimate: (estimate.num_blocks, estimate.kv_cache))


def kv_blocks(
    kv_bytes: int,
    facts: ModelFacts,
    *,
    tensor: int,
    pipeline: int,
    kv_dtype_bytes: float,
    block_size: int,
) -> int:
    """Return how many blocks fit if the space for the KV cache is given outright.

    This is exact for vLLM where all layers cache alike. Where some have sliding windows vLLM
    counts more, smaller blocks; as many tokens fit, within some percent, or more if the context
    is much longer than the window.

    Args:
        kv_bytes: bytes of one device for the cache (VLLM_CPU_KVCACHE_SPACE times GIB, or
            kv_cache_memory_bytes).
        facts: the model.
        tensor: devices each layer is split over.
        pipeline: stages the layers are split into.
        kv_dtype_bytes: bytes of one cached number.
        block_size: tokens of a block.

    Raises:
        ConfigurationError: a degree or size is not positive, or stages outnumber layers.
    """
    layers = max(_checked_stages(facts, tensor, pipeline))
    _check_positive(block_size=block_size, kv_dtype_bytes=kv_dtype_bytes)
    block = _block_bytes(facts, layers, tensor, kv_dtype_bytes, block_size)
    return max(kv_bytes, 0) // block if block else 0


def kv_bytes_per_token(facts: ModelFacts, *, tensor: int = 1, kv_dtype_bytes: float = 2) -> float:
    """Return the bytes one token takes in the KV cache of all layers on one device."""
    values = _kv_values_per_device(facts, tensor)
    return values * facts.num_kv_layers * kv_dtype_bytes


def valid_tensor_degrees(facts: ModelFacts, limit: int) -> list[int]:
    """Return the tensor parallel degrees up to the limit that vLLM accepts.

    Every device needs as many attention heads as the others, and either an equal share of the
    KV heads or, if there are fewer of them than devices, one that it shares with equally many.
    """
    return [degree for degree in divisors(facts.num_heads, limit) if _accepts(facts, degree)]


def divisors(number: int, limit: int) -> list[int]:
    """Return the divisors of a number up to a limit, in their order."""
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return [each for each in sorted({*small, *(number // each for each in small)}) if each <= limit]


def _accepts(facts: ModelFacts, degree: int) -> bool:
    # The one latent vector of MLA is on every device.
    kv_heads = facts.num_kv_heads
    return facts.is_mla or kv_heads % degree == 0 or degree % kv_heads == 0


def _checked_stages(facts: ModelFacts, tensor: int, pipeline: int) -> list[int]:
    """Return the layers of each stage, shared out as vLLM does it.

    The last stage gets the fewest, as it also has the head; then the first, for the embeddings.
    """
    _check_positive(tensor_parallel_degree=tensor, pipeline_parallel_degree=pipeline)
    if pipeline > facts.num_layers:
        problem = f"more stages than the model has layers ({facts.num_layers})"
        raise ConfigurationError(f"pipeline_parallel_degree={pipeline}: {problem}")
    stages = [facts.num_layers // pipeline] * pipeline
    for index in range(2, facts.num_layers % pipeline + 2):
        stages[-index] += 1
    return stages


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if number <= 0:
            raise ConfigurationError(f"{name}={number} is not positive")


def _stage_weights(facts: ModelFacts, stages: list[int], tensor: int, scale: float) -> list[int]:
    """Return the bytes of weights on one device of each stage.

    What every device has a copy of (norms, KV projections beyond the KV heads) is counted as if
    it were split: it is some percent at most.
    """
    matrix = float(facts.vocab_size * facts.hidden_size * DTYPE_BYTES.get(facts.dtype, 2))
    matrices = matrix if facts.ties_embeddings else 2 * matrix
    # Of tiny or oddly stored models the embeddings may seem larger than everything.
    matrix *= min(1.0, facts.weight_bytes / matrices)
    matrices = min(matrices, facts.weight_bytes)
    layer = (facts.weight_bytes - matrices) / facts.num_layers
    sizes = [layers * layer for layers in stages]
    sizes[0] += matrix
    # A tied matrix is there once more if the head is on another device.
    if not facts.ties_embeddings or len(stages) > 1:
        sizes[-1] += matrix
    return [math.ceil(size * scale / tensor) for size in sizes]


def _activations(facts: ModelFacts, tensor: int, tokens: int, sequences: int) -> int:
    """Return about the peak of one step in bytes, which vLLM finds by a trial run.

    For each token there are the residual, a block's input and its output, and what is widest of
    attention (queries, keys, values, result), the gated MLP (gate and up, then their product) and
    the chosen experts (the same for each, or its output). One row of logits for each sequence
    comes on top: the allocator may still hold the layers' memory when they are made.
    """
    hidden, heads = facts.hidden_size, facts.num_heads
    kv_heads = max(1, facts.num_kv_heads // tensor)
    attention = facts.head_dim * (2 * heads / tensor + 2 * kv_heads)
    mlp = 3 * facts.intermediate_size / tensor
    expert = facts.expert_intermediate_size / tensor
    experts = facts.experts_per_token * (max(2 * expert, hidden) + expert)
    values = 3 * hidden + max(attention, mlp, experts if facts.num_experts else 0)
    logits = sequences * facts.vocab_size * (_LOGIT_BYTES + _ACTIVATION_BYTES / tensor)
    return math.ceil(tokens * values * _ACTIVATION_BYTES + logits)


def _block_bytes(
    facts: ModelFacts, layers: int, tensor: int, kv_dtype_bytes: float, block_size: int
) -> int:
    """Return the bytes of one block on a device with so many of the layers."""
    # Layers with a cache are spread evenly among the others.
    kv_layers = math.ceil(facts.num_kv_layers * layers / facts.num_layers)
    values = _kv_values_per_device(facts, tensor)
    return math.ceil(block_size * values * kv_layers * kv_dtype_bytes)


def _kv_values_per_device(facts: ModelFacts, tensor: int) -> int:
    """Return the numbers a layer caches for one token on one device."""
    if facts.is_mla:
        # All heads read the same latent vector, so each device needs it whole.
        return facts.kv_values_per_token_and_layer
    per_head = facts.kv_values_per_token_and_layer // facts.num_kv_heads
    return per_head * max(1, facts.num_kv_heads // tensor)
