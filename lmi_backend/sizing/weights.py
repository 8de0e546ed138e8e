"""How many bytes a model's weights take: on disk, else by its config.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.files import read_bounded
from lmi_backend.sizing.config_fields import ConfigFields
from lmi_backend.sizing.kv_layers import (
    count_borrowing,
    has_low_rank_gates,
    indexer_share,
    read_delta_shape,
    read_mamba_shape,
)
from lmi_backend.sizing.layer_kinds import feed_forwards, mixers, named_kinds
from lmi_backend.sizing.quantization import (
    DTYPE_BYTES,
    MXFP4_BITS,
    is_positive,
    module_bits,
    quantised_bits,
    quantization_config,
)
from lmi_backend.sizing.widths import PLAIN_MLP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lmi_backend.sizing.kv_layers import CachedLayers
    from lmi_backend.sizing.shape import Shape


_GATED: Final = ("afmoe", "muse_glimmer")
"""Families whose attention always has a gate as wide as the queries."""


def whole_parameters(config: ConfigFields, shape: Shape, cache: CachedLayers) -> int:
    """Return the parameters of one layer's attention that each device has whole.

    vLLM splits what belongs to heads. What makes the latent vectors before them is on all devices,
    and so is the indexer of sparse attention.
    """
    hidden = shape.hidden_size
    low_rank = config.number("q_lora_rank", default=0)
    if config.get("kv_lora_rank") is None:
        is_grouped = config.number("o_lora_rank", default=0) > 0
        chosen = _chosen(config, shape, cache, low_rank)
        return hidden * (low_rank + shape.head_dim) + chosen if is_grouped else 0
    latent = config.number("kv_lora_rank") + config.number("qk_rope_head_dim", least=0)
    return hidden * (low_rank + latent) + _indexer(config, shape, low_rank or hidden)


def _unfolding_bytes(config: ConfigFields, shape: Shape, cache: CachedLayers) -> int:
    """Return the bytes of what vLLM makes besides the weights of all layers' latent attention.

    It keeps a second copy, of 16 bits, of the matrices that make keys and values of latent vectors.
    """
    width = config.number("qk_nope_head_dim") + config.number("v_head_dim", default=0)
    each = 2 * config.number("kv_lora_rank") * shape.num_heads * width
    return each * cache.layers


def attention_parameters(config: ConfigFields, shape: Shape, cache: CachedLayers) -> int:
    hidden, heads = shape.hidden_size, shape.num_heads
    if config.get("kv_lora_rank") is None:
        # Qwen3-Next and later have a gate as wide as the queries.
        family = config.text("model_type")
        is_gated = family.startswith(_GATED) or (
            family.startswith("qwen") and read_delta_shape(config) is not None
        )
        gated = config.flag("attn_output_gate", default=is_gated)
        if low_rank := config.number("o_lora_rank", default=0):
            return _grouped_attention(config, shape, cache, low_rank)
        seen = config.number("attention_hidden_size", default=hidden)
        out = heads * hidden
        return shape.head_dim * (seen * (heads + 2 * shape.num_kv_heads + gated * heads) + out)
    rope = config.number("qk_rope_head_dim", least=0)
    latent = config.number("kv_lora_rank")
    value = config.number("v_head_dim", default=hidden // heads)
    query = heads * shape.head_dim
    low_rank = config.number("q_lora_rank", default=0)
    queries = low_rank * (hidden + query) if low_rank else hidden * query
    keys = hidden * (latent + rope) + latent * heads * (shape.head_dim - rope + value)
    indexer = _indexer(config, shape, low_rank or hidden)
    return queries + keys + heads * value * hidden + indexer


def _grouped_attention(
    config: ConfigFields, shape: Shape, cache: CachedLayers, low_rank: int
) -> int:
    """Return the parameters of DeepSeek-V4's attention: one head's keys are its values too."""
    hidden, queries = shape.hidden_size, shape.num_heads * shape.head_dim
    first = config.number("q_lora_rank", default=hidden)
    groups = config.number("o_groups", default=1)
    out = queries * low_rank + groups * low_rank * hidden
    chosen = _chosen(config, shape, cache, first)
    return first * (hidden + queries) + hidden * shape.head_dim + out + chosen


def _chosen(config: ConfigFields, shape: Shape, cache: CachedLayers, low_rank: int) -> int:
    """Return what makes the indexer's queries, for each layer: only some have an indexer."""
    if cache.compressed is None:
        return 0
    width = config.number("index_head_dim", default=0) * config.number("index_n_heads", default=0)
    return low_rank * width * cache.compressed.few // shape.num_layers


def compressing_parameters(config: ConfigFields, shape: Shape, cache: CachedLayers) -> int:
    """Return the parameters that compress the text of all layers, whole on each device (V4).

    Each is a vector's content and its gate; where compressed texts overlap, both twice. Indexers
    have their own. What joins streams of hidden states has 32 bits, and counts as two here.
    """
    if cache.compressed is None:
        return 0
    hidden, streams = shape.hidden_size, config.number("hc_mult", default=0)
    index = config.number("index_head_dim", default=0)
    few = cache.compressed.few * (4 * (shape.head_dim + index) + config.number("index_n_heads"))
    many = cache.compressed.many * 2 * shape.head_dim
    joins = 2 * shape.num_layers * 2 * (2 + streams) * streams**2
    return hidden * (few + many + joins)


def _indexer(config: ConfigFields, shape: Shape, low_rank: int) -> int:
    """Return what chooses the tokens that sparse attention sees, by the mean of the layers."""
    hidden = shape.hidden_size
    width = config.number("index_head_dim", default=0, least=0)
    heads = config.number("index_n_heads", default=0, least=0)
    own = width * (heads * low_rank + hidden) + heads * hidden
    return int(indexer_share(config, shape.num_layers) * own)


# Families with a learned vector for each position.
_LEARNED_POSITIONS = frozenset(
    {"bart", "biogpt", "gpt2", "gpt_bigcode", "gpt_neo", "mbart", "opt", "whisper"}
)


_EXPERTS = (
    "mlp.experts.0.down_proj", "mlp.experts", "mixer.experts", "mixer.experts.0.down_proj",
    "block_sparse_moe.experts", "block_sparse_moe.experts.0.w2", "ffn.experts", "ffn.experts.0.w2",
)  # fmt: skip
_BESIDE_MLP = ("experts", "experts.0.down_proj", "moe.experts.0.down_proj")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Matrices of one kind in some of the layers."""

    modules: tuple[str, ...]
    """Their names in a layer, as families call them."""
    layers: tuple[int, ...]
    parameters: float
    """Of all these layers."""
    is_expert: bool = False
    whole: float = 0.0
    """Those of them that each of the devices has, which share the layers."""
    keys: float = 0.0
    """Those of them that make keys and values: no more devices than KV heads share them."""


def _mixer_parts(config: ConfigFields, shape: Shape, cache: CachedLayers) -> Iterator[Part]:
    """Yield what mixes the tokens of a layer."""
    encoders = encoder_layers(config, shape)
    # A decoder that sees an encoder's output has a second, crossed attention.
    crossed = shape.num_layers - encoders if shape.is_encoder_decoder else 0
    names = ("self_attn", "self_attn.q_proj", "mixer.q_proj", "attn.wq_a")
    attention, states = mixers(config, shape.num_layers)
    wide = _wide_layers(config, shape, cache)
    narrow = tuple(at for at in attention if at not in wide)
    copies = _copies(config)
    each = float(copies * attention_parameters(config, shape, cache))
    lent = 2 * shape.hidden_size * shape.head_dim * shape.num_kv_heads
    borrowing = count_borrowing(config, narrow)
    whole = (len(narrow) + crossed) * each - borrowing * lent
    undivided = len(narrow) * copies * whole_parameters(config, shape, cache)
    keys = 0.0 if undivided else (len(narrow) - borrowing) * copies * lent
    yield Part(modules=names, layers=narrow, parameters=whole, whole=undivided, keys=keys)
    if cache.wide:
        # Where values are the keys (`attention_k_eq_v`), vLLM keeps both all the same.
        heads = 2 * shape.num_heads + 2 * cache.wide.kv_heads
        own = shape.hidden_size * cache.wide.head_dim * heads
        lent = 2 * shape.hidden_size * cache.wide.head_dim * cache.wide.kv_heads
        borrowing = count_borrowing(config, wide)
        whole = len(wide) * own - borrowing * lent
        keys = (len(wide) - borrowing) * lent
        yield Part(modules=names, layers=wide, parameters=whole, keys=keys)
    state = _state_layer(config, shape)
    yield Part(
        modules=("linear_attn.out_proj", "linear_attn", "mixer.in_proj", "mamba", "conv.in_proj"),
        layers=states,
        parameters=len(states) * state,
    )


def _copies(config: ConfigFields) -> int:
    """Return how many attentions and MLPs a layer has."""
    return 2 if config.text("model_type") == "longcat_flash" else 1


def _wide_layers(config: ConfigFields, shape: Shape, cache: CachedLayers) -> tuple[int, ...]:
    kinds = named_kinds(config, shape.num_layers)
    if not cache.wide or not kinds:
        return ()
    return tuple(at for at, kind in enumerate(kinds) if kind == "full_attention")


def _mlp_parts(
    config: ConfigFields, shape: Shape, dense: tuple[int, ...], experts: tuple[int, ...]
) -> Iterator[Part]:
    """Yield what a layer has for each token alone: one MLP, or experts."""
    mlp = float(_mlp(config, shape, shape.intermediate_size))
    shared = config.number("num_kv_shared_layers", default=0, least=0)
    doubled = shared if config.get("use_double_wide_mlp") is True else 0
    names = ("mlp.gate_proj", "mlp.down_proj", "mixer.down_proj", "feed_forward.w1", "mlp")
    copies = _copies(config)
    written = dense if copies == 1 else tuple(range(shape.num_layers))
    mlp *= copies
    yield Part(modules=names, layers=written, parameters=(len(written) + doubled) * mlp)
    # Nemotron's experts see a narrower vector, which two matrices make and take back.
    latent = config.number("moe_latent_size", "routed_expert_hidden_size", default=0)
    hidden = latent or shape.hidden_size
    expert = _mlp(config, shape, shape.expert_intermediate_size) * hidden // shape.hidden_size
    count = len(experts)
    # Gemma's layers have both, side by side.
    is_beside = bool(set(dense) & set(experts))
    yield Part(
        modules=_BESIDE_MLP if is_beside else _EXPERTS,
        layers=experts,
        parameters=count * shape.num_experts * expert,
        is_expert=True,
    )
    joined = _shared_experts(config, shape) + 2 * latent * shape.hidden_size
    yield Part(
        modules=(
            "mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj",
            "mixer.shared_experts.down_proj", "mlp.shared_experts", "mlp.shared_expert",
            "ffn.shared_experts.w2",
        ),
        layers=experts,
        parameters=count * joined,
        whole=count * 2 * latent * shape.hidden_size,
    )  # fmt: skip
    if width := config.number("hidden_size_per_layer_input", default=0, least=0):
        # Gemma's gate and projection for each layer's own embeddings.
        every = tuple(range(shape.num_layers))
        parameters = 3 * shape.num_layers * width * shape.hidden_size
        yield Part(
            modules=("per_layer_input_gate",),
            layers=every,
            parameters=parameters,
            whole=parameters * 2 / 3,
        )


def encoder_layers(config: ConfigFields, shape: Shape) -> int:
    if not shape.is_encoder_decoder:
        return 0
    return config.number("num_layers", "encoder_layers", default=shape.num_layers // 2)


def _mlp(config: ConfigFields, shape: Shape, width: int) -> int:
    kind = config.text("model_type").lower()
    if kind == "qwen":
        # The first Qwen writes the width of gate and up together.
        width //= 2
    gated = kind not in PLAIN_MLP
    if kind in {"t5", "mt5", "umt5"}:
        gated = config.text("feed_forward_proj").startswith("gated")
    return (3 if gated else 2) * shape.hidden_size * width


def _shared_experts(config: ConfigFields, shape: Shape) -> int:
    """Return the parameters of the experts that every token of one layer passes."""
    names = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    others = ("shared_intermediate_size", "share_expert_dim")
    width = config.number(*names, *others, default=0, least=0)
    counts = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts",
              "num_shared_expert")  # fmt: skip
    count = config.number(*counts, default=0, least=0)
    if config.text("model_type").startswith("llama4"):
        count = 1
    return _mlp(config, shape, width or count * shape.expert_intermediate_size)


def _state_layer(config: ConfigFields, shape: Shape) -> int:
    """Return about how many parameters the mixer of a layer without KV cache has."""
    if config.get("conv_L_cache") is not None:
        return 4 * shape.hidden_size**2
    if delta := read_delta_shape(config):
        if has_low_rank_gates(config):
            # Kimi's: queries, keys, values, result, and two gates of low rank.
            wide = delta.value_heads * delta.value_dim
            return shape.hidden_size * (4 * wide + 3 * delta.value_dim) + 2 * wide * delta.key_dim
        values = delta.value_heads * delta.value_dim
        # In: queries, keys, values and the gate; two numbers a head. Out: the values.
        return shape.hidden_size * (delta.convolved + 2 * values + 2 * delta.value_heads)
    mamba = read_mamba_shape(config)
    if mamba and mamba.heads:
        return shape.hidden_size * (mamba.convolved + 2 * mamba.width + mamba.heads)
    if mamba:
        # Mamba-1: steps of low rank, and a transition for each channel and number of its state.
        rank = -(-shape.hidden_size // 16)
        beside = 2 * rank + 3 * mamba.state + 8
        return mamba.width * (3 * shape.hidden_size + beside)
    expand = config.number("mamba_expand", "expand", default=2)
    # In: twice the expanded width; out: once.
    return 3 * expand * shape.hidden_size**2


def _embeddings(config: ConfigFields, shape: Shape) -> int:
    own = config.number("hidden_size_per_layer_input", default=0, least=0)
    if own:
        # A vector for each word and layer; a matrix that makes the prompt's of its embedding.
        words = config.number("vocab_size_per_layer_input", default=shape.vocab_size)
        own *= shape.num_layers * words
    positions = 0
    if config.text("model_type").lower() in _LEARNED_POSITIONS:
        positions = shape.max_position_embeddings
    return (shape.vocab_size + positions) * shape.hidden_size + own


COMPUTED: Final = "computed from config.json"
"""Where a size is from when no file of weights says it."""
# What training leaves beside the weights; adapters are loaded on their own.
_NOT_WEIGHTS = frozenset({"training_args.bin", "optimizer.bin", "scheduler.bin"})


def weights_on_disk(folder: Path) -> tuple[int, str] | None:
    """Return the bytes of the folder's weights and where the number is from; None if it has none.

    safetensors come before PyTorch's own format, as every engine prefers them. The index comes
    before the files. The files may be there twice (Mistral's "consolidated"), or not yet.
    """
    for index, pattern, source in (
        ("model.safetensors.index.json", "*.safetensors", "safetensors index"),
        ("pytorch_model.bin.index.json", "*.bin", "pytorch_model.bin index"),
    ):
        if total := _total_size(folder / index):
            return total, source
        if total := _file_sizes(folder, pattern):
            return total, "file sizes"
    return None


@dataclass(frozen=True, kw_only=True)
class Weights:
    total: int
    source: str
    """Where `total` is from, for example "safetensors index"."""
    expert_share: float = 0.0
    """Of all of them, what is in routed experts."""
    whole: int = 0
    """What each device has whole that shares the layers: norms, routers, latent projections."""
    keys: int = 0
    """Of what makes keys and values, which no more devices than KV heads share."""
    unfolding: int = 0
    """In addition, the copy of 16 bits that vLLM makes of what unfolds latent vectors (MLA)."""


def computed_weights(config: ConfigFields, shape: Shape, cache: CachedLayers) -> Weights:
    """Return the bytes of the weights by the shapes in config.json.

    Biases are left out, they are less than 0.2 %, and so are further layers for speculation.
    Embeddings and encoders are never quantised, a head only where the file names it. MXFP4
    quantises the experts only.
    """
    dense, with_experts = feed_forwards(config, shape.num_layers, shape.num_experts)
    plain = float(DTYPE_BYTES.get(shape.dtype, 2) * 8)
    quantization = quantization_config(config)
    bits = quantised_bits(quantization, shape.quantization) or plain
    modules = module_bits(quantization, bits, plain)
    has_4_bit_experts = config.get("expert_dtype") == "fp4"
    # Never quantised: norms, and what chooses experts.
    whole = plain * (
        len(with_experts) * shape.hidden_size * shape.num_experts
        + (2 * shape.num_layers + 1) * shape.hidden_size
        + compressing_parameters(config, shape, cache)
    )
    total = whole + plain * (_embeddings(config, shape) + shape.vision_parameters)
    if not shape.ties_embeddings:
        head = bits if quantization.get("lm_head") is True else modules.head
        total += shape.vocab_size * shape.hidden_size * head
    experts = keys = 0.0
    parts = (*_mixer_parts(config, shape, cache), *_mlp_parts(config, shape, dense, with_experts))
    for part in (part for part in parts if part.layers):
        each = modules.average(part.modules, part.layers)
        if shape.quantization == "mxfp4" and not part.is_expert:
            each = plain
        elif part.is_expert and has_4_bit_experts:
            each = MXFP4_BITS
        total += part.parameters * each
        experts += part.parameters * each if part.is_expert else 0.0
        whole += part.whole * each
        keys += part.keys * each
    bytes_of = [round(bits / 8) for bits in (total, experts, whole, keys)]
    return Weights(
        total=bytes_of[0],
        source=COMPUTED,
        expert_share=bytes_of[1] / bytes_of[0] if bytes_of[0] else 0.0,
        whole=bytes_of[2],
        keys=bytes_of[3],
        unfolding=_unfolding_bytes(config, shape, cache) if cache.is_mla else 0,
    )


def _total_size(index: Path) -> int:
    """Return the bytes an index says its shards hold; 0 if it does not."""
    try:
        total = json.loads(read_bounded(index))["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # Engines load without it, so it is no reason to refuse; the files tell as well.
        return 0
    return int(total) if is_positive(total) else 0


def _file_sizes(folder: Path, pattern: str) -> int:
    files = [path for path in folder.glob(pattern) if path.is_file()]
    files = [path for path in files if path.name not in _NOT_WEIGHTS]
    files = [path for path in files if not path.name.startswith("adapter_")]
    # The same weights once more, in Mistral's own layout.
    others = [path for path in files if not path.name.startswith("consolidated")]
    return sum(path.stat().st_size for path in others or files)
