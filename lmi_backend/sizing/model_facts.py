"""What a model's folder says about its size: layers, heads, cache and weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lmi_backend.sizing.config_fields import (
    ConfigFields,
    read_architectures,
    read_config,
    read_served_architectures,
    unread_fields,
)
from lmi_backend.sizing.draft import COMPUTED, Draft
from lmi_backend.sizing.kv_layers import (
    NO_LOCAL,
    NO_STATES,
    LocalAttention,
    StateLayers,
    WideAttention,
    count_kv_layers,
    read_index_bytes,
    read_local_attention,
    read_state_layers,
    read_wide_attention,
)
from lmi_backend.sizing.kv_layout import CompressedLayers, read_compressed_layers
from lmi_backend.sizing.layer_kinds import (
    ATTENTION_FREE,
    T5,
    count_layers,
    feed_forwards,
    is_encoder_decoder,
    pruned_group,
)
from lmi_backend.sizing.weights import (
    computed_weights,
    computes_in_8_bits,
    has_4_bit_floats,
    keeps_cache_in_8_bits,
    quantization_config,
    quantization_method,
    unfolding_bytes,
    weights_dtype,
    weights_on_disk,
)
from lmi_backend.sizing.widths import (
    PLAIN_MLP,
    count_encoder_parameters,
    count_experts,
    expert_width,
    experts_per_token,
    mlp_width,
    rotated_numbers,
)

_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "attn_config.kv_n_heads",
             "num_attention_groups")  # fmt: skip
_TALKER = "talker_config"
_UNPACKED = frozenset({"minicpm3"})
# Transformers ties Falcon's head although its published weights have one.
_NEVER_TIED = frozenset({"falcon"})


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The shape of one model; of a multimodal one, its language model's."""

    architecture: str
    """First of config.json's architectures, "" if it names none."""
    num_layers: int
    """All layers; an encoder-decoder's are those of both."""
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    """Width of one query head."""
    vocab_size: int
    intermediate_size: int
    """Width of a dense layer's MLP; where all layers have experts, of one of them."""
    max_position_embeddings: int
    """Tokens, before rope scaling; 0 if the config names no limit."""
    dtype: str
    """Of the weights that are not quantised, for example "bfloat16"."""
    weight_bytes: int
    weight_source: str
    """Where weight_bytes is from, for example "safetensors index"."""
    kv_values_per_token_and_layer: int
    """Numbers a layer caches for one token, before they are split over devices."""
    num_kv_layers: int
    """Layers with a KV cache."""
    is_mla: bool
    """Whether the cache is one latent vector for all heads (DeepSeek)."""
    is_encoder_decoder: bool
    num_experts: int
    """Routed experts of a layer, 0 if the model is dense."""
    quantization: str
    """Method of the weights, for example "awq"; "" if there is none."""
    ties_embeddings: bool = False
    """Whether the output head is the embedding matrix."""
    expert_intermediate_size: int = 0
    """Width of one routed expert."""
    experts_per_token: int = 0
    has_dense_layers: bool = True
    """Whether a layer has one MLP for all tokens."""
    has_8_bit_activations: bool = False
    """Whether the MLP computes in 8 bits."""
    vision_parameters: int = 0
    """Of encoders of images and sounds; 0 if there are none."""
    sound_parameters: int = 0
    """Those of them that are of sounds."""
    wide: WideAttention | None = None
    """Heads of the layers that see the whole text, where the others have different ones."""
    local: LocalAttention = NO_LOCAL
    """Layers that see only a window; they are among num_kv_layers."""
    states: StateLayers = NO_STATES
    """Layers with a state instead of a cache; they are not."""
    expert_share: float = 0.0
    """Of the weights, what is in routed experts."""
    whole_bytes: int = 0
    """Of the weights, what each device has whole that shares the layers."""
    key_bytes: int = 0
    """Of the weights, what makes keys and values."""
    unfolding_bytes: int = 0
    """Of all layers, the copy of 16 bits that vLLM makes of what unfolds latent vectors (MLA)."""
    is_gated: bool = True
    """Whether an MLP has a gate: three matrices, not two."""
    has_4_bit_floats: bool = False
    """Whether the weights are of NVFP4 or its like."""
    caches_in_8_bits: bool = False
    """Whether the checkpoint says that its cache is of 8 bits."""
    compressed: CompressedLayers | None = None
    """Layers that cache compressed text (DeepSeek-V4)."""
    index_bytes: int = 0
    """Of a layer and token, for what chooses the tokens that sparse attention sees."""
    rotated: int = 0
    """Numbers of one position's rotations; 0 if they are as many as a head has."""
    num_mtp_layers: int = 0
    """Further layers that predict tokens after the next, if speculation uses them."""
    unread: tuple[str, ...] = ()
    """Fields of config.json that nobody has read and that may mean memory."""
    assumed: tuple[str, ...] = ()
    """Fields that config.json lacks, so that its class's defaults were taken."""
    unknown_class: str = ""
    """config.json's model_type if its config class is not known here."""
    drafted_tokens: int = 0
    """Tokens that are guessed in a step: layers with a state keep one for each."""
    draft: Draft | None = None
    """What drafts tokens for it; None if nothing does."""
    served_architectures: tuple[str, ...] = ()
    """The architectures that an engine may serve it as."""


def read_model_facts(
    folder: Path, overrides: Mapping[str, object] | None = None
) -> ModelFacts | None:
    """Read the facts of the model in a local folder.

    Args:
        folder: where config.json is.
        overrides: fields that the engine is told to take instead of those in the file.

    Returns:
        The facts; None if the folder has no config.json.

    Raises:
        ConfigurationError: config.json is broken, or lacks a number or has an absurd one.
    """
    config = read_config(folder, overrides)
    if config is None:
        return None
    facts = _shape(config)
    on_disk = weights_on_disk(folder)
    computed = computed_weights(config, facts)
    total, source = on_disk or (computed.total, COMPUTED)
    if on_disk and overrides and (written := read_config(folder)):
        # Layers that are left out are not loaded.
        whole = computed_weights(written, _shape(written)).total
        total = total * computed.total // max(1, whole)
    if _TALKER in config.outer and computed.total < total:
        # vLLM does not load the part that speaks; no index tells what each part takes.
        total, source = computed.total, COMPUTED
    return replace(
        facts,
        weight_bytes=total,
        weight_source=source,
        expert_share=computed.experts / computed.total if computed.total else 0.0,
        whole_bytes=computed.whole,
        key_bytes=computed.keys,
        unfolding_bytes=unfolding_bytes(config, facts) if facts.is_mla else 0,
        is_gated=_kind(config) not in PLAIN_MLP,
        unread=unread_fields(config),
        assumed=tuple(sorted(config.assumed)),
        unknown_class=config.unknown_class,
    )


def _shape(config: ConfigFields) -> ModelFacts:
    """Return the facts without the weights."""
    architectures = read_architectures(config)
    hidden = config.number("hidden_size", "n_embd", "d_model", "n_embed", "model_dim")
    heads = _heads(config)
    kv_heads = heads if _is_mla(config) else _kv_heads(config, heads)
    head_dim = _head_dim(config, hidden, heads)
    layers, decoder_layers = count_layers(config)
    experts = count_experts(config)
    images, sounds = count_encoder_parameters(config, hidden)
    wide = read_wide_attention(config, kv_heads, head_dim)
    return ModelFacts(
        architecture=architectures[0] if architectures else "",
        served_architectures=read_served_architectures(config),
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=config.number("vocab_size", "padded_vocab_size"),
        intermediate_size=mlp_width(config, hidden),
        max_position_embeddings=_max_positions(config),
        dtype=weights_dtype(config),
        weight_bytes=0,
        weight_source="",
        kv_values_per_token_and_layer=_kv_values(config, kv_heads, head_dim),
        num_kv_layers=count_kv_layers(config, decoder_layers),
        is_mla=_is_mla(config),
        is_encoder_decoder=is_encoder_decoder(config),
        num_experts=experts,
        quantization=quantization_method(config),
        ties_embeddings=_ties_embeddings(config),
        expert_intermediate_size=expert_width(config) if experts else 0,
        experts_per_token=experts_per_token(config) if experts else 0,
        has_dense_layers=bool(feed_forwards(config, layers, experts)[0]),
        has_8_bit_activations=computes_in_8_bits(quantization_config(config)),
        vision_parameters=images + sounds,
        sound_parameters=sounds,
        wide=wide,
        local=read_local_attention(config, decoder_layers),
        states=read_state_layers(config, decoder_layers),
        compressed=read_compressed_layers(config, decoder_layers),
        index_bytes=read_index_bytes(config, layers),
        rotated=rotated_numbers(config, head_dim, wide),
        has_4_bit_floats=has_4_bit_floats(quantization_config(config)),
        caches_in_8_bits=keeps_cache_in_8_bits(quantization_config(config)),
        num_mtp_layers=config.number(
            "num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, least=0
        ),
    )


def _kind(config: ConfigFields) -> str:
    return config.text("model_type").lower()


def _is_mla(config: ConfigFields) -> bool:
    """Tell whether the latent vector is cached; vLLM unpacks MiniCPM-3's before."""
    return config.get("kv_lora_rank") is not None and _kind(config) not in _UNPACKED


def _ties_embeddings(config: ConfigFields) -> bool:
    if _kind(config) in _NEVER_TIED and config.outer.get("tie_word_embeddings") is None:
        return False
    # The original T5 says nothing, and has one matrix.
    return config.flag("tie_word_embeddings", default=_kind(config) == "t5")


def _heads(config: ConfigFields) -> int:
    names = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
    attention_free = _kind(config) in ATTENTION_FREE
    return config.number(*names, "num_query_heads", default=1 if attention_free else None)


def _kv_heads(config: ConfigFields, heads: int) -> int:
    if config.flag("multi_query_attention"):
        kv_heads = config.number("multi_query_group_num")
    elif config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        # Falcon-7B also writes num_kv_heads=71, and does not mean it.
        kv_heads = 1
    else:
        kv_heads = config.number(*_KV_HEADS, default=heads // pruned_group(config))
    if heads % kv_heads:
        name = config.name_of("multi_query_group_num", *_KV_HEADS)
        raise config.error(name, kv_heads, f"does not divide the {heads} attention heads")
    return kv_heads


def _head_dim(config: ConfigFields, hidden: int, heads: int) -> int:
    if config.get("kv_lora_rank") is not None:
        return config.number("qk_nope_head_dim") + config.number("qk_rope_head_dim", least=0)
    names = ("head_dim", "attention_head_dim", "kv_channels", "d_kv", "hidden_size_per_head")
    if explicit := config.number(*names, default=0, least=0):
        return explicit
    return max(1, hidden // heads)


def _kv_values(config: ConfigFields, kv_heads: int, head_dim: int) -> int:
    if _is_mla(config):
        return config.number("kv_lora_rank") + config.number("qk_rope_head_dim", least=0)
    # Some families' values are narrower than their keys.
    is_plain = config.get("kv_lora_rank") is None
    if is_plain and (values := config.number("v_head_dim", default=0)) and values != head_dim:
        return kv_heads * (head_dim + values)
    return 2 * kv_heads * head_dim


def _max_positions(config: ConfigFields) -> int:
    if _kind(config) in T5:
        # Relative positions: n_positions is what it was trained with, not a limit.
        return 0
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
    return config.number(
        *names, "seq_length", "max_target_positions", "model_max_length", default=0
    )


def valid_tensor_degrees(facts: ModelFacts, limit: int) -> list[int]:
    """Return the tensor parallel degrees up to the limit that vLLM accepts.

    Every device needs as many attention heads as the others. It also needs an equal share of the KV
    heads. If there are fewer KV heads than devices, each is shared by equally many devices.
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
