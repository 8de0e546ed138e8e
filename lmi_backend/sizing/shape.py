"""The shape of a model: how many layers and heads it has, and how wide they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.config_fields import read_architectures, read_served_architectures
from lmi_backend.sizing.kv_layers import is_mla, read_wide_attention
from lmi_backend.sizing.layer_kinds import (
    ATTENTION_FREE,
    T5,
    count_layers,
    feed_forwards,
    is_encoder_decoder,
    pruned_group,
)
from lmi_backend.sizing.quantization import (
    computes_in_8_bits,
    has_4_bit_floats,
    quantization_config,
    quantization_method,
    weights_dtype,
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

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields

_KV_HEADS: Final = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "attn_config.kv_n_heads",
    "num_attention_groups",
)  # fmt: skip
# Transformers ties Falcon's head although its published weights have one.
_NEVER_TIED: Final = frozenset({"falcon"})


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape of one model; of a multimodal one, its language model's."""

    architecture: str
    """First of config.json's architectures, "" if it names none."""
    served_architectures: tuple[str, ...] = ()
    """The architectures that an engine may serve it as."""
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
    is_gated: bool = True
    """Whether an MLP has a gate: three matrices, not two."""
    has_8_bit_activations: bool = False
    """Whether the MLP computes in 8 bits."""
    has_4_bit_floats: bool = False
    """Whether the weights are of NVFP4 or its like."""
    vision_parameters: int = 0
    """Of encoders of images and sounds; 0 if there are none."""
    sound_parameters: int = 0
    """Those of them that are of sounds."""
    rotated: int = 0
    """Numbers of one position's rotations; 0 if they are as many as a head has."""
    num_mtp_layers: int = 0
    """Further layers that predict tokens after the next, if speculation uses them."""


def read_shape(config: ConfigFields) -> Shape:
    """Return the shape that a config.json describes.

    Raises:
        ConfigurationError: it lacks a number, or has an absurd one.
    """
    architectures = read_architectures(config)
    hidden = config.number("hidden_size", "n_embd", "d_model", "n_embed", "model_dim")
    heads = _heads(config)
    kv_heads = heads if is_mla(config) else _kv_heads(config, heads)
    head_dim = _head_dim(config, hidden, heads)
    layers, _ = count_layers(config)
    experts = count_experts(config)
    images, sounds = count_encoder_parameters(config, hidden)
    wide = read_wide_attention(config, kv_heads, head_dim)
    quantization = quantization_config(config)
    return Shape(
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
        is_encoder_decoder=is_encoder_decoder(config),
        num_experts=experts,
        quantization=quantization_method(config),
        ties_embeddings=_ties_embeddings(config),
        expert_intermediate_size=expert_width(config) if experts else 0,
        experts_per_token=experts_per_token(config) if experts else 0,
        has_dense_layers=bool(feed_forwards(config, layers, experts)[0]),
        is_gated=_kind(config) not in PLAIN_MLP,
        has_8_bit_activations=computes_in_8_bits(quantization),
        has_4_bit_floats=has_4_bit_floats(quantization),
        vision_parameters=images + sounds,
        sound_parameters=sounds,
        rotated=rotated_numbers(config, head_dim, wide),
        num_mtp_layers=config.number(
            "num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, least=0
        ),
    )


def _kind(config: ConfigFields) -> str:
    return config.text("model_type").lower()


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


def _max_positions(config: ConfigFields) -> int:
    if _kind(config) in T5:
        # Relative positions: n_positions is what it was trained with, not a limit.
        return 0
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
    return config.number(
        *names, "seq_length", "max_target_positions", "model_max_length", default=0
    )
