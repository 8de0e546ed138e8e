"""What vLLM keeps free on a device for LoRA adapters, before one is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import ModelFacts


@dataclass(frozen=True, kw_only=True)
class AdapterSlots:
    """How many adapters a step may mix, and how large they may be."""

    count: int
    rank: int
    bytes_each: int = 2
    """Of a number."""


UNSURE: Final = 0.15
"""Of these bytes: three logs of one model have 9 % more for each slot than is counted."""


def adapter_bytes(facts: ModelFacts, slots: AdapterSlots, *, tensor: int, pipeline: int) -> int:
    """Return the bytes of a device for all slots: attention, MLPs, experts, and the vocabulary.

    Each matrix has two of a low rank. Where the matrix is split by its output (queries, gates), the
    first is whole on each device. Where it is split by its input (the results of attention and
    MLP), the second is. A layer with a state counts as one with attention. Those of the embeddings
    and of the head are whole on each device that has them.
    """
    hidden, split = facts.hidden_size, tensor
    queries = facts.num_heads * facts.head_dim / split
    keys = max(1, facts.num_kv_heads // split) * facts.head_dim
    attention = 3 * hidden + queries + queries + 2 * keys + hidden
    mlp = _gated(hidden, facts.intermediate_size / split) if facts.has_dense_layers else 0.0
    expert = _gated(hidden, facts.expert_intermediate_size / split) if facts.num_experts else 0.0
    layer = attention + max(mlp, facts.num_experts * expert)
    layers = -(-facts.num_layers // pipeline)
    ends = 2 if pipeline == 1 else 1
    numbers = layers * layer + ends * (facts.vocab_size + hidden)
    return int(numbers * slots.rank * slots.count * slots.bytes_each)


def _gated(hidden: int, width: float) -> float:
    """Return in- and outputs of an MLP's three matrices."""
    return 2 * (hidden + width) + width + hidden
