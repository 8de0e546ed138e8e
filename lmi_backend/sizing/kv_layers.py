"""Which layers of a model keep a key-value cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.sizing.config_fields import ConfigFields

    KeepsCache = Callable[[object], bool]

# Every so many layers one sees the whole text.
_LOCAL_PERIODS = {"gemma2": 2, "gemma3_text": 6, "gemma3": 6, "cohere2": 4, "llama4_text": 4}

ATTENTION_FREE = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv"})
"""Model types without a key-value cache."""


def count_kv_layers(config: ConfigFields, num_layers: int) -> int:
    """Return how many of the layers have a KV cache.

    Hybrid models mix attention with layers whose state does not grow with the text. Layers with
    a sliding window are among them; `read_local_attention` counts those.
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


@dataclass(frozen=True)
class LocalAttention:
    """Layers that see only the latest tokens, and so keep only these."""

    layers: int = 0
    window: int = 0
    """Tokens a layer sees."""
    is_chunked: bool = False
    """Whether it sees its own chunk of the text, and not a window that slides."""


NO_LOCAL = LocalAttention()
"""All layers see the whole text."""


def read_local_attention(config: ConfigFields, num_layers: int) -> LocalAttention:
    """Return which of the layers see only a window of the text."""
    if config.get("use_sliding_window") is False:
        return NO_LOCAL
    for name, kind in (("attention_chunk_size", "chunked"), ("sliding_window", "sliding")):
        if config.get(name) and (window := config.number(name, default=0, least=0)):
            layers = _local_layers(config, num_layers, f"{kind}_attention")
            return LocalAttention(layers, window if layers else 0, kind == "chunked")
    return NO_LOCAL


def _local_layers(config: ConfigFields, num_layers: int, kind: str) -> int:
    if isinstance(kinds := config.get("layer_types"), list) and kinds:
        return kinds[:num_layers].count(kind)
    family = config.text("model_type")
    period = config.number(
        "sliding_window_pattern", "_sliding_window_pattern", default=_LOCAL_PERIODS.get(family, 0),
    )  # fmt: skip
    if period:
        return num_layers - num_layers // period
    if config.get("use_sliding_window") is True:
        # Qwen's first layers see everything.
        return max(num_layers - config.number("max_window_layers", default=0, least=0), 0)
    return count_kv_layers(config, num_layers)


@dataclass(frozen=True)
class WideAttention:
    """Heads of layers that see the whole text in a model whose others have different ones."""

    kv_heads: int
    head_dim: int


def read_wide_attention(config: ConfigFields, kv_heads: int, head_dim: int) -> WideAttention | None:
    """Return these heads (Gemma 4 has fewer and larger ones); None if all layers have the same."""
    found = WideAttention(
        config.number("num_global_key_value_heads", default=kv_heads),
        config.number("global_head_dim", default=head_dim),
    )
    return None if found == WideAttention(kv_heads, head_dim) else found


@dataclass(frozen=True)
class StateLayers:
    """Layers whose cache is one state for a sequence, whatever its length."""

    layers: int = 0
    numbers: int = 0
    """Of one layer's recurrent state, before it is split over devices."""
    bytes_each: int = 0
    """Of such a number; 0 if it is like the model's."""
    convolved: int = 0
    """Numbers of its convolution's state, which are like the model's."""


NO_STATES = StateLayers()
"""No layer has a state."""


def read_state_layers(config: ConfigFields, num_layers: int) -> StateLayers:
    """Return the layers with a state that vLLM keeps in blocks beside those of attention."""
    dtype = config.text("mamba_ssm_dtype") or config.text("mamba_ssm_cache_dtype")
    size = {"float32": 4, "bfloat16": 2, "float16": 2}.get(dtype, 0)
    kernel = config.number("linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv", default=4) - 1
    if shape := read_delta_shape(config):
        layers = num_layers - count_kv_layers(config, num_layers)
        numbers = shape.value_heads * shape.value_dim * shape.key_dim
        return StateLayers(layers, numbers, size, kernel * shape.convolved)
    mamba = read_mamba_shape(config)
    if mamba is None or not (layers := count_state_layers(config, num_layers)):
        return NO_STATES
    return StateLayers(layers, mamba.width * mamba.state, size, kernel * mamba.convolved)


def count_state_layers(config: ConfigFields, num_layers: int) -> int:
    """Return how many layers have a recurrent state; a pattern may have layers with neither."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return pattern[:num_layers].count("M")
    return num_layers - count_kv_layers(config, num_layers)


@dataclass(frozen=True)
class MambaShape:
    """Sizes of a Mamba mixer, Mamba-2's where it has heads."""

    width: int
    """Of the expanded hidden state."""
    heads: int
    groups: int
    state: int

    @property
    def convolved(self) -> int:
        """Channels of the convolution."""
        return self.width + 2 * self.groups * self.state


def read_mamba_shape(config: ConfigFields) -> MambaShape | None:
    """Return the sizes of the Mamba mixers; None if the config does not say."""
    if not (state := config.number("ssm_state_size", "mamba_d_state", default=0)):
        return None
    heads = config.number("mamba_num_heads", "mamba_n_heads", default=0)
    if not heads:
        # Mamba-1, as in Jamba: one state for each channel.
        width = config.number("mamba_expand", default=2) * config.number("hidden_size")
        return MambaShape(width, 0, 0, state)
    groups = config.number("n_groups", "mamba_n_groups", default=1)
    if config.get("mamba_d_head") == "auto":
        width = config.number("mamba_expand", default=2) * config.number("hidden_size")
    else:
        width = heads * config.number("mamba_head_dim", "mamba_d_head")
    return MambaShape(width, heads, groups, state)


@dataclass(frozen=True)
class DeltaShape:
    """Sizes of a gated delta net (Qwen3-Next and later)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int

    @property
    def convolved(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


def read_delta_shape(config: ConfigFields) -> DeltaShape | None:
    """Return the sizes of the gated delta nets; None if there are none."""
    if not (values := config.number("linear_num_value_heads", default=0)):
        return None
    return DeltaShape(
        config.number("linear_num_key_heads"),
        values,
        config.number("linear_key_head_dim"),
        config.number("linear_value_head_dim"),
    )


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
