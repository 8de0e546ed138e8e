"""Which layers of a model keep a key-value cache, and of what size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.config_fields import read_architectures
from lmi_backend.sizing.layer_kinds import count_layers, mixers
from lmi_backend.sizing.quantization import keeps_cache_in_8_bits, quantization_config

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields


_UNPACKED: Final = frozenset({"minicpm3"})


def is_mla(config: ConfigFields) -> bool:
    """Tell whether the latent vector is cached; vLLM unpacks MiniCPM-3's before."""
    is_latent = config.get("kv_lora_rank") is not None
    return is_latent and config.text("model_type").lower() not in _UNPACKED


def count_kv_layers(config: ConfigFields, num_layers: int) -> int:
    """Return how many of the layers have a KV cache.

    Hybrid models mix attention with layers whose state does not grow with the text. Layers with
    a sliding window are among them; `read_local_attention` counts those.
    """
    attention, _ = mixers(config, num_layers)
    own = _own_caches(config, num_layers)
    return len([at for at in attention if at < own]) or min(1, len(attention))


def _own_caches(config: ConfigFields, num_layers: int) -> int:
    """Return how many layers do not use the cache of earlier ones, as Gemma-3n's last ones do."""
    return max(1, num_layers - config.number("num_kv_shared_layers", default=0, least=0))


def count_borrowing(config: ConfigFields, layers: tuple[int, ...]) -> int:
    """Return how many layers use earlier ones' keys and values, and have no matrices for them."""
    if not config.text("model_type").startswith("gemma4"):
        return 0
    shared = config.number("num_kv_shared_layers", default=0, least=0)
    return sum(at >= config.number("num_hidden_layers") - shared for at in layers)


_KEY_BYTES: Final = 2
_WIDEST: Final = 1 << 20


def read_index_bytes(config: ConfigFields, num_layers: int) -> int:
    """Return what a layer's indexer keeps: a key of 8 bits a number, and a scale for each 128.

    Where some layers share another's indexer, or have none, it is the mean. MiniMax-M3's keys have
    the model's 16 bits.
    """
    if sparse := config.get("sparse_attention_config"):
        return _sparse_keys(sparse, num_layers)
    width = config.number("index_head_dim", default=0, least=0)
    return round(indexer_share(config, num_layers) * (width + 4 * -(-width // 128)))


def _sparse_keys(sparse: object, num_layers: int) -> int:
    if not isinstance(sparse, Mapping) or sparse.get("use_sparse_attention") is False:
        return 0
    width, layers = sparse.get("sparse_index_dim"), sparse.get("sparse_attention_freq")
    if isinstance(width, bool) or not isinstance(width, int) or not 0 < width < _WIDEST:
        return 0
    own = layers[:num_layers] if isinstance(layers, list) else []
    share = sum(map(bool, own)) / len(own) if own else 1.0
    return round(share * width * _KEY_BYTES)


def indexer_share(config: ConfigFields, num_layers: int) -> float:
    """Return the share of the layers that have an indexer of their own."""
    kinds = config.get("indexer_types")
    if isinstance(kinds, list) and kinds:
        own = [each for each in kinds[:num_layers] if each != "shared"]
        return len(own) / min(num_layers, len(kinds))
    if config.text("model_type") == "hy_v4":
        # The first, and then each fourth.
        return (1 + -(-(num_layers - 1) // 4)) / num_layers
    return 1.0


_SEES_ONE_MORE: Final = frozenset({"cohere2", "cohere2_moe"})


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
            local = _local_layers(config, num_layers, kind)
            layers = min(local, count_kv_layers(config, num_layers))
            # Cohere's layers see the latest token beside those of the window.
            window += config.text("model_type") in _SEES_ONE_MORE
            return LocalAttention(layers, window if layers else 0, kind == "chunked")
    return NO_LOCAL


def _local_layers(config: ConfigFields, num_layers: int, kind: str) -> int:
    own = _own_caches(config, num_layers)
    kinds = config.get("layer_types")
    if not isinstance(kinds, list) or not kinds:
        marked = _marked(config, num_layers)
        if marked is not None:
            return marked
        kinds = config.usual_kinds(own)
    if kinds:
        return sum(kind in str(each) for each in kinds[:own])
    if config.get("use_sliding_window") is True:
        # Qwen's first layers see everything.
        return max(num_layers - config.number("max_window_layers", default=0, least=0), 0)
    return count_kv_layers(config, num_layers)


def _marked(config: ConfigFields, num_layers: int) -> int | None:
    """Return the layers with a window where the file marks or counts them; else None."""
    if isinstance(marks := config.get("hybrid_layer_pattern"), list) and marks:
        return marks[:num_layers].count(1)
    marks = config.get("sliding_window_pattern")
    if isinstance(marks, str) and marks.strip("0123456789"):
        # EXAONE writes one period: local and global layers.
        return sum(marks[at % len(marks)].upper() != "G" for at in range(num_layers))
    period = config.number("sliding_window_pattern", "_sliding_window_pattern", default=0)
    own = _own_caches(config, num_layers)
    return own - own // period if period else None


@dataclass(frozen=True)
class WideAttention:
    """Heads of layers that see the whole text in a model whose others have different ones."""

    kv_heads: int
    head_dim: int


def read_wide_attention(config: ConfigFields, kv_heads: int, head_dim: int) -> WideAttention | None:
    """Return these heads (Gemma 4 has fewer and larger ones); None if all layers have the same."""
    # Transformers 5.19 writes what is different of each layer by its number.
    numbered = config.get("per_layer_config")
    layers = numbered.values() if isinstance(numbered, dict) else ()
    other: dict[str, object] = next((each for each in layers if isinstance(each, dict)), {})
    # DeepSeek's `head_dim` is that of the rotations alone: only what is told of a layer counts.
    written = replace(config, fields={"head_dim": head_dim, **other})
    wide = WideAttention(
        config.number(
            "num_global_key_value_heads",
            default=written.number("num_key_value_heads", default=kv_heads),
        ),
        config.number(
            "global_head_dim", default=written.number("head_dim", default=head_dim, least=0)
        )
        or head_dim,
    )
    return None if wide == WideAttention(kv_heads, head_dim) else wide


@dataclass(frozen=True)
class StateLayers:
    """Layers whose cache is one state for a sequence of any length."""

    layers: int = 0
    numbers: int = 0
    """Of one layer's recurrent state, before it is split over devices."""
    bytes_each: int = 0
    """Of such a number; 0 if it is like the model's."""
    convolved: int = 0
    """Numbers of its convolution's state, which are like the model's."""
    delta: DeltaShape | None = None
    """Sizes of a gated delta net."""
    channels: int = 0
    """Of its convolution: what a drafted token adds to the convolution's state."""
    checkpoints: bool = False
    """Whether the state at a block's edge is kept from inside a step, as in Mamba-2."""


NO_STATES = StateLayers()
"""No layer has a state."""


def read_state_layers(config: ConfigFields, num_layers: int) -> StateLayers:
    """Return the layers whose state vLLM keeps in blocks, like the cache of attention."""
    dtype = config.text("mamba_ssm_dtype") or config.text("mamba_ssm_cache_dtype")
    if not dtype and config.text("model_type").startswith("nemotron_h"):
        dtype = "float32"
    size = {"float32": 4, "bfloat16": 2, "float16": 2}.get(dtype, 0)
    layers = len(mixers(config, num_layers)[1])
    if not layers:
        return NO_STATES
    if (latest := config.number("conv_L_cache", default=0)) > 1:
        # LFM2: a short convolution without a recurrent state.
        width = config.number("conv_dim", "hidden_size")
        return StateLayers(layers, 0, size, (latest - 1) * width)
    kernel = config.number(
        "linear_conv_kernel_dim", "conv_kernel", "mamba_d_conv",
        "linear_attn_config.short_conv_kernel_size", default=4,
    ) - 1  # fmt: skip
    if shape := read_delta_shape(config):
        numbers = shape.value_heads * shape.value_dim * shape.key_dim
        # Of Kimi's delta attention the state is of 32 bits whatever the model's type is.
        each = 4 if has_low_rank_gates(config) else size
        return StateLayers(layers, numbers, each, kernel * shape.convolved, shape, shape.convolved)
    mamba = read_mamba_shape(config)
    if mamba is None:
        return NO_STATES
    return StateLayers(
        layers,
        mamba.width * mamba.state,
        size,
        kernel * mamba.convolved,
        channels=mamba.convolved,
        checkpoints=bool(mamba.heads),
    )


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
    state = config.number("ssm_state_size", "mamba_d_state", "state_size", default=0)
    if not state:
        return None
    names = ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
    heads = config.number(*names, default=0)
    if not heads and config.text("model_type") == "mamba2":
        heads = config.number("num_heads", default=0)
    width = config.number("mamba_expand", "expand", default=2) * config.number("hidden_size")
    if not heads:
        # Mamba-1, as in Jamba: one state for each channel.
        return MambaShape(width, 0, 0, state)
    groups = config.number("n_groups", "mamba_n_groups", "mamba_ngroups", default=1)
    if config.get("mamba_d_ssm") is not None:
        width = config.number("mamba_d_ssm")
    elif isinstance(config.get("mamba_head_dim") or config.get("mamba_d_head"), int):
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


def has_low_rank_gates(config: ConfigFields) -> bool:
    """Tell whether the delta nets are Kimi's."""
    return bool(config.get("linear_attn_config") or config.get("linear_num_heads"))


def read_delta_shape(config: ConfigFields) -> DeltaShape | None:
    """Return the sizes of the gated delta nets; None if there are none."""
    if heads := config.number("linear_attn_config.num_heads", default=0):
        width = config.number("linear_attn_config.head_dim")
        return DeltaShape(heads, heads, width, width)
    if heads := config.number("linear_num_heads", default=0):
        width = config.number("linear_head_dim")
        return DeltaShape(heads, heads, width, width)
    if not (values := config.number("linear_num_value_heads", default=0)):
        return None
    return DeltaShape(
        config.number("linear_num_key_heads"),
        values,
        config.number("linear_key_head_dim"),
        config.number("linear_value_head_dim"),
    )


_COMPRESSING: Final = ("deepseek_v4", "deepseekv4")
FEW, MANY = 4, 128
"""Tokens that a layer compresses into one."""


@dataclass(frozen=True)
class CompressedLayers:
    """How many layers compress the text, and what they keep in addition."""

    few: int
    """Layers that compress four tokens into one, and have an indexer."""
    many: int
    """Layers that compress 128 tokens into one."""
    index_bytes: int
    """Of an indexer's compressed token."""


def read_compressed_layers(config: ConfigFields, num_layers: int) -> CompressedLayers | None:
    """Return these layers; None if the model is another."""
    ratios = config.get("compress_ratios")
    named = (config.text("model_type"), *read_architectures(config))
    is_other = not any(name.lower().startswith(_COMPRESSING) for name in named)
    if is_other or not isinstance(ratios, list):
        return None
    own = ratios[:num_layers]
    width = config.number("index_head_dim", default=128)
    index = width + 4 * -(-width // 128)
    return CompressedLayers(own.count(FEW), own.count(MANY), index)


@dataclass(frozen=True, kw_only=True)
class CachedLayers:
    """What the layers of a model cache, before it is split over devices."""

    values: int
    """Numbers a layer caches for one token."""
    layers: int
    """Layers with a KV cache."""
    is_mla: bool
    """Whether the cache is one latent vector for all heads (DeepSeek)."""
    wide: WideAttention | None = None
    """Heads of the layers that see the whole text, where the others have different ones."""
    local: LocalAttention = NO_LOCAL
    """Layers that see only a window; they are among `layers`."""
    states: StateLayers = NO_STATES
    """Layers with a state instead of a cache; they are not."""
    compressed: CompressedLayers | None = None
    """Layers that cache compressed text (DeepSeek-V4)."""
    index_bytes: int = 0
    """Of a layer and token, for what chooses the tokens that sparse attention sees."""
    is_8_bit: bool = False
    """Whether the checkpoint says that its cache is of 8 bits."""


def read_cached_layers(config: ConfigFields, kv_heads: int, head_dim: int) -> CachedLayers:
    """Return what the layers of a model with such heads cache.

    Raises:
        ConfigurationError: config.json lacks a number, or has an absurd one.
    """
    layers, decoder_layers = count_layers(config)
    return CachedLayers(
        values=_kv_values(config, kv_heads, head_dim),
        layers=count_kv_layers(config, decoder_layers),
        is_mla=is_mla(config),
        wide=read_wide_attention(config, kv_heads, head_dim),
        local=read_local_attention(config, decoder_layers),
        states=read_state_layers(config, decoder_layers),
        compressed=read_compressed_layers(config, decoder_layers),
        index_bytes=read_index_bytes(config, layers),
        is_8_bit=keeps_cache_in_8_bits(quantization_config(config)),
    )


def _kv_values(config: ConfigFields, kv_heads: int, head_dim: int) -> int:
    if is_mla(config):
        return config.number("kv_lora_rank") + config.number("qk_rope_head_dim", least=0)
    # Some families' values are narrower than their keys.
    is_plain = config.get("kv_lora_rank") is None
    if is_plain and (values := config.number("v_head_dim", default=0)) and values != head_dim:
        return kv_heads * (head_dim + values)
    return 2 * kv_heads * head_dim
