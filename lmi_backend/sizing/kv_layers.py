"""Which layers of a model keep a key-value cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.sizing.config_fields import ConfigFields

    KeepsCache = Callable[[object], bool]

ATTENTION_FREE = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv"})
"""Model types without a key-value cache."""


def count_kv_layers(config: ConfigFields, num_layers: int) -> int:
    """Return how many of the layers have a KV cache.

    Hybrid models mix attention with layers whose state does not grow with the text. A layer with
    a sliding window counts like any other: that errs on the side of too much memory.
    """
    if config.text("model_type") in ATTENTION_FREE:
        return 0
    for name, keeps_cache in _ONE_ENTRY_A_LAYER.items():
        kinds = config.get(name)
        if isinstance(kinds, list | str) and kinds:
            return sum(map(keeps_cache, kinds[:num_layers]))
    if isinstance(pattern := config.get("block_types"), list) and pattern:
        # RecurrentGemma writes one period of the pattern.
        return sum(_is_attention(pattern[i % len(pattern)]) for i in range(num_layers))
    if isinstance(indices := config.get("attn_layer_indices"), list):
        return len(indices)
    if period := config.number("attn_layer_period", "full_attention_interval", default=0):
        # Jamba counts from an offset, Qwen3-Next takes the last layer of each period.
        offset = config.number("attn_layer_offset", default=period - 1, least=0)
        return len(range(offset, num_layers, period))
    # Gemma-3n's last layers reuse the cache of earlier ones.
    shared = config.number("num_kv_shared_layers", default=0, least=0)
    return max(num_layers - shared, 1)


def _is_attention(kind: object) -> bool:
    """Say whether a layer called so has a cache ("full_attention", "hybrid", "mamba", …)."""
    name = str(kind)
    return name == "hybrid" or ("attention" in name and not name.startswith("linear"))


def _has_attention(block: object) -> bool:
    """Say whether a block of a pruned Nemotron still has its attention."""
    attention = block.get("attention") if isinstance(block, dict) else None
    return not (isinstance(attention, dict) and attention.get("no_op"))


_ONE_ENTRY_A_LAYER: dict[str, KeepsCache] = {
    "layers_block_type": _is_attention,
    "layer_types": _is_attention,
    "attn_type_list": lambda kind: kind == 1,
    "hybrid_override_pattern": lambda letter: letter == "*",
    "block_configs": _has_attention,
}
