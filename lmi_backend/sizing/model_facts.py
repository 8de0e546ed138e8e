"""What a model's folder says about its size: layers, heads, cache and weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lmi_backend.sizing.config_fields import ConfigFields, read_config
from lmi_backend.sizing.draft import COMPUTED, Draft
from lmi_backend.sizing.kv_layers import (
    ATTENTION_FREE,
    NO_LOCAL,
    NO_STATES,
    LocalAttention,
    StateLayers,
    WideAttention,
    count_kv_layers,
    read_local_attention,
    read_state_layers,
    read_wide_attention,
)
from lmi_backend.sizing.parameters import PLAIN_MLP, count_mlp_layers, count_vision_parameters
from lmi_backend.sizing.weights import (
    computed_weights,
    computes_in_8_bits,
    dtype_bytes,
    quantization_config,
    weights_on_disk,
)

_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "attn_config.kv_n_heads")
_T5 = frozenset({"t5", "mt5", "umt5"})
# Families whose head is the embedding matrix unless the config says otherwise. Falcon is not
# among them although transformers says so: its published weights have a head.
_TIED = frozenset(
    {
        "bart", "bloom", "cohere", "cohere2", "ernie4_5", "gemma", "gemma2", "gemma3",
        "gemma3_text", "gemma3n_text", "gpt2", "gpt_bigcode", "gpt_neo", "lfm2", "m2m_100",
        "mbart", "mpt", "mt5", "opt", "pegasus", "smollm3", "starcoder2", "t5", "whisper",
        "zamba2",
    }
)  # fmt: skip


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
    """Of a vision encoder; 0 if there is none."""
    wide: WideAttention | None = None
    """Heads of the layers that see the whole text, where the others have different ones."""
    local: LocalAttention = NO_LOCAL
    """Layers that see only a window; they are among num_kv_layers."""
    states: StateLayers = NO_STATES
    """Layers with a state instead of a cache; they are not."""
    num_mtp_layers: int = 0
    """Further layers that predict tokens after the next, where speculation asks for them."""
    draft: Draft | None = None
    """What drafts tokens for it; None if nothing does."""


def read_model_facts(folder: Path) -> ModelFacts | None:
    """Read the facts of the model in a local folder.

    Returns:
        The facts; None if the folder has no config.json.

    Raises:
        ConfigurationError: config.json is broken, or lacks a number or has an absurd one.
    """
    config = read_config(folder)
    if config is None:
        return None
    facts = _shape(config)
    on_disk = weights_on_disk(folder)
    total, source = on_disk or (computed_weights(config, facts), COMPUTED)
    return replace(facts, weight_bytes=total, weight_source=source)


def _shape(config: ConfigFields) -> ModelFacts:
    """Return the facts without the weights."""
    architectures = _architectures(config)
    hidden = config.number("hidden_size", "n_embd", "d_model", "n_embed", "model_dim")
    heads = _heads(config)
    is_mla = config.get("kv_lora_rank") is not None
    kv_heads = heads if is_mla else _kv_heads(config, heads)
    head_dim = _head_dim(config, hidden, heads)
    layers, decoder_layers = _layers(config)
    experts = _experts(config)
    return ModelFacts(
        architecture=architectures[0] if architectures else "",
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=config.number("vocab_size", "padded_vocab_size"),
        intermediate_size=_intermediate_size(config, hidden),
        max_position_embeddings=_max_positions(config),
        dtype=_dtype(config),
        weight_bytes=0,
        weight_source="",
        kv_values_per_token_and_layer=_kv_values(config, kv_heads, head_dim),
        num_kv_layers=count_kv_layers(config, decoder_layers),
        is_mla=is_mla,
        is_encoder_decoder=_is_encoder_decoder(config),
        num_experts=experts,
        quantization=_quantization(config),
        ties_embeddings=config.flag("tie_word_embeddings", default=_kind(config) in _TIED),
        expert_intermediate_size=_expert_width(config) if experts else 0,
        experts_per_token=_experts_per_token(config) if experts else 0,
        has_dense_layers=bool(count_mlp_layers(config, layers, experts)[1]),
        has_8_bit_activations=computes_in_8_bits(quantization_config(config)),
        vision_parameters=count_vision_parameters(config, hidden),
        wide=read_wide_attention(config, kv_heads, head_dim),
        local=read_local_attention(config, decoder_layers),
        states=read_state_layers(config, decoder_layers),
        num_mtp_layers=config.number(
            "num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, least=0
        ),
    )


def _kind(config: ConfigFields) -> str:
    return config.text("model_type").lower()


def _architectures(config: ConfigFields) -> list[str]:
    # The file's own come first: a language model inside another is named after itself.
    found = config.outer.get("architectures") or config.get("architectures") or []
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise config.error("architectures", found, "is not a list of names")
    return found


def _is_encoder_decoder(config: ConfigFields) -> bool:
    return config.flag("is_encoder_decoder", default=_kind(config) in _T5)


def _layers(config: ConfigFields) -> tuple[int, int]:
    """Return the number of all layers and of those in the decoder."""
    if not _is_encoder_decoder(config):
        layers = config.number("num_hidden_layers", "n_layer", "n_layers", "num_layers")
        return layers, layers
    encoder = config.number("num_layers", "encoder_layers", "num_hidden_layers")
    decoder = config.number("num_decoder_layers", "decoder_layers", default=encoder)
    return encoder + decoder, decoder


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
        kv_heads = config.number(*_KV_HEADS, default=heads)
    if heads % kv_heads:
        name = config.name_of("multi_query_group_num", *_KV_HEADS)
        raise config.error(name, kv_heads, f"does not divide the {heads} attention heads")
    return kv_heads


def _head_dim(config: ConfigFields, hidden: int, heads: int) -> int:
    if config.get("kv_lora_rank") is not None:
        return config.number("qk_nope_head_dim") + config.number("qk_rope_head_dim")
    if explicit := config.number("head_dim", "kv_channels", "d_kv", default=0):
        return explicit
    if hidden % heads:
        raise config.error("hidden_size", hidden, f"cannot be divided among {heads} heads")
    return hidden // heads


def _kv_values(config: ConfigFields, kv_heads: int, head_dim: int) -> int:
    if config.get("kv_lora_rank") is not None:
        return config.number("kv_lora_rank") + config.number("qk_rope_head_dim")
    return 2 * kv_heads * head_dim


def _intermediate_size(config: ConfigFields, hidden: int) -> int:
    names = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "decoder_ffn_dim")
    fallback = None
    if _kind(config) in PLAIN_MLP | ATTENTION_FREE:
        ratio = config.number("expansion_ratio", default=4)
        fallback = ratio * hidden
    if config.get("intermediate_size_mlp") is not None:
        # Llama-4's intermediate_size is an expert's.
        return config.number("intermediate_size_mlp")
    return config.number(*names, "d_ff", "ffn_config.ffn_hidden_size", default=fallback)


def _experts(config: ConfigFields) -> int:
    names = ("num_local_experts", "num_experts", "n_routed_experts", "ffn_config.moe_num_experts")
    found = config.number(*names, "moe_num_experts", default=0, least=0)
    # One "expert" is how a family writes that a model is dense.
    return found if found > 1 else 0


def _expert_width(config: ConfigFields) -> int:
    names = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    return config.number(*names, "ffn_config.ffn_hidden_size")


def _experts_per_token(config: ConfigFields) -> int:
    names = ("num_experts_per_tok", "num_experts_per_token", "ffn_config.moe_top_k", "moe_topk")
    return config.number(*names, "moe_k", default=1)


def _max_positions(config: ConfigFields) -> int:
    if _kind(config) in _T5:
        # Relative positions: n_positions is what it was trained with, not a limit.
        return 0
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length")
    return config.number(*names, "seq_length", "max_target_positions", default=0)


def _dtype(config: ConfigFields) -> str:
    name = config.text(config.name_of("dtype", "torch_dtype")) or "float32"
    dtype = name.removeprefix("torch.")
    dtype_bytes(config, dtype)
    return dtype


def _quantization(config: ConfigFields) -> str:
    found = quantization_config(config)
    method = found.get("quant_method")
    if method is None and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        return "bitsandbytes"
    if method is None and found.get("config_groups"):
        return "compressed-tensors"
    if method is not None and not isinstance(method, str):
        raise config.error("quantization_config.quant_method", method, "is not a string")
    return (method or "").lower()
