"""Bytes that one layer of each kind caches on a device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.kv_groups import CacheSizes

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import ModelFacts

_MODEL_BYTES: Final = 2
"""Of a number of the states of convolutions, which have the model's 16 bits."""


def cache_sizes(facts: ModelFacts, tensor: int, dtype_bytes: float) -> CacheSizes:
    """Return what a layer takes for a token, or of a state for a sequence.

    Args:
        facts: the model.
        tensor: devices each layer is split over.
        dtype_bytes: bytes of a cached number of attention.
    """
    states, wide = facts.states, facts.wide
    convolved = states.convolved + facts.drafted_tokens * states.channels
    state = states.numbers * (states.bytes_each or _MODEL_BYTES) + convolved * _MODEL_BYTES
    values = _values_per_device(facts, tensor)
    full = 2 * wide.head_dim * max(1, wide.kv_heads // tensor) if wide else values
    return CacheSizes(
        token=values * dtype_bytes + facts.index_bytes,
        full_token=full * dtype_bytes + facts.index_bytes,
        state=math.ceil(state / tensor),
    )


def _values_per_device(facts: ModelFacts, tensor: int) -> int:
    """Return the numbers a layer caches for one token on one device."""
    if facts.is_mla:
        # All heads read the same latent vector, so each device needs it whole.
        return facts.kv_values_per_token_and_layer
    per_head = facts.kv_values_per_token_and_layer // facts.num_kv_heads
    return per_head * max(1, facts.num_kv_heads // tensor)
