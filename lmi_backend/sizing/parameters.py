"""Count a model's parameters from its config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmi_backend.sizing.config_fields import ConfigFields
from lmi_backend.sizing.kv_layers import (
    ATTENTION_FREE,
    count_state_layers,
    read_delta_shape,
    read_mamba_shape,
)

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import ModelFacts

# Families whose MLP is two matrices; all others gate it with a third.
PLAIN_MLP = frozenset(
    {
        "biogpt", "bart", "bloom", "codegen", "falcon", "gpt2", "gpt_bigcode", "gpt_neo",
        "gpt_neox", "gptj", "m2m_100", "mbart", "mpt", "nemotron", "nemotron_h", "opt",
        "pegasus", "persimmon", "phi", "refinedweb", "refinedwebmodel", "starcoder2", "whisper",
    }
)  # fmt: skip
# Families with a learned vector for each position.
_LEARNED_POSITIONS = frozenset(
    {"bart", "biogpt", "gpt2", "gpt_bigcode", "gpt_neo", "mbart", "opt", "whisper"}
)


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """Numbers of parameters, split by how quantisation treats them."""

    embeddings: int
    """Input embeddings, positions and the output head if it is not the same matrix."""
    experts: int
    """Matrices of the routed experts."""
    body: int
    """All else in the layers."""
    vision: int = 0
    """A vision encoder's."""

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embeddings + self.experts + self.body + self.vision


def count_parameters(config: ConfigFields, facts: ModelFacts) -> ParameterCount:
    """Count the language model's parameters; biases are left out, they are less than 0.2 %.

    Extra layers for speculation are left out too.

    Args:
        config: the model's config.json.
        facts: what was read of it; its weight fields are not used.
    """
    hidden, mlp = facts.hidden_size, _mlp(config, facts, facts.intermediate_size)
    decoders = facts.num_layers - encoder_layers(config, facts)
    # A decoder that sees an encoder's output has a second, crossed attention.
    crossed = decoders if facts.is_encoder_decoder else 0
    attentions = facts.num_kv_layers + facts.num_layers - decoders + crossed
    stateful = count_state_layers(config, decoders)
    moe, dense = count_mlp_layers(config, facts.num_layers, facts.num_experts)
    if config.text("model_type") in ATTENTION_FREE:
        dense = 0
    expert = _mlp(config, facts, facts.expert_intermediate_size)
    body = attentions * _attention(config, facts) + dense * mlp
    body += moe * (_shared_experts(config, facts) + hidden * facts.num_experts)
    body += stateful * _state_layer(config, facts) + (2 * facts.num_layers + 1) * hidden
    return ParameterCount(
        embeddings=_embeddings(config, facts),
        experts=moe * facts.num_experts * expert,
        body=body,
        vision=facts.vision_parameters,
    )


def count_vision_parameters(config: ConfigFields, hidden: int) -> int:
    """Count a vision encoder's parameters and those of its projection; 0 if there is none."""
    found = config.outer.get("vision_config")
    if not isinstance(found, dict):
        return 0
    vision = ConfigFields(config.file, found, found, "vision_config.")
    layers = vision.number("num_hidden_layers", "depth", default=0, least=0)
    # Qwen2-VL's hidden_size is the language model's.
    width = vision.number("embed_dim", "hidden_size", default=0, least=0)
    ratio = found.get("mlp_ratio")
    widened = int(width * ratio) if isinstance(ratio, int | float) else 4 * width
    inner = vision.number("intermediate_size", default=max(widened, 1))
    matrices = 3 if vision.text("hidden_act") == "silu" else 2
    return layers * (4 * width**2 + matrices * width * inner) + width * hidden


def encoder_layers(config: ConfigFields, facts: ModelFacts) -> int:
    """Return how many of the layers are an encoder's."""
    if not facts.is_encoder_decoder:
        return 0
    return config.number("num_layers", "encoder_layers", default=facts.num_layers // 2)


def _attention(config: ConfigFields, facts: ModelFacts) -> int:
    hidden, heads = facts.hidden_size, facts.num_heads
    if not facts.is_mla:
        # Qwen3-Next and later have a gate as wide as the queries.
        gated = config.flag("attn_output_gate", default=read_delta_shape(config) is not None)
        return facts.head_dim * hidden * (2 * (heads + facts.num_kv_heads) + gated * heads)
    rope = config.number("qk_rope_head_dim")
    latent = config.number("kv_lora_rank")
    value = config.number("v_head_dim")
    query = heads * facts.head_dim
    low_rank = config.number("q_lora_rank", default=0)
    queries = low_rank * (hidden + query) if low_rank else hidden * query
    keys = hidden * (latent + rope) + latent * heads * (facts.head_dim - rope + value)
    return queries + keys + heads * value * hidden


def _mlp(config: ConfigFields, facts: ModelFacts, width: int) -> int:
    kind = config.text("model_type").lower()
    if kind == "qwen":
        # The first Qwen writes the width of gate and up together.
        width //= 2
    gated = kind not in PLAIN_MLP
    if kind in {"t5", "mt5", "umt5"}:
        gated = config.text("feed_forward_proj").startswith("gated")
    return (3 if gated else 2) * facts.hidden_size * width


def count_mlp_layers(config: ConfigFields, layers: int, experts: int) -> tuple[int, int]:
    """Return how many layers have experts and how many one MLP."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        # Nemotron-H: a layer is a mixer, or attention, or an MLP ("-"), or experts ("E").
        return pattern[:layers].count("E"), pattern[:layers].count("-")
    if not experts:
        return 0, layers
    if isinstance(only := config.get("mlp_only_layers"), list) and only:
        moe = layers - len(only)
    elif isinstance(chosen := config.get("moe_layers"), list):
        moe = len(chosen)
    else:
        first = config.number("first_k_dense_replace", default=0, least=0)
        names = ("decoder_sparse_step", "interleave_moe_layer_step", "expert_layer_period")
        moe = (layers - first) // config.number(*names, default=1)
    moe = min(max(moe, 0), layers)
    return moe, layers - moe


def _shared_experts(config: ConfigFields, facts: ModelFacts) -> int:
    """Return the parameters of the experts that every token of one layer passes."""
    width = config.number("shared_expert_intermediate_size", default=0, least=0)
    count = config.number("n_shared_experts", "num_shared_experts", default=0, least=0)
    if config.text("model_type").startswith("llama4"):
        count = 1
    return _mlp(config, facts, width or count * facts.expert_intermediate_size)


def _state_layer(config: ConfigFields, facts: ModelFacts) -> int:
    """Return about how many parameters the mixer of a layer without KV cache has."""
    if delta := read_delta_shape(config):
        values = delta.value_heads * delta.value_dim
        # In: queries, keys, values and the gate; two numbers a head. Out: the values.
        return facts.hidden_size * (delta.convolved + 2 * values + 2 * delta.value_heads)
    if mamba := read_mamba_shape(config):
        return facts.hidden_size * (mamba.convolved + 2 * mamba.width + mamba.heads)
    expand = config.number("mamba_expand", "expand", default=2)
    # In: twice the expanded width; out: once.
    return 3 * expand * facts.hidden_size**2


def _embeddings(config: ConfigFields, facts: ModelFacts) -> int:
    matrices = 1 if facts.ties_embeddings else 2
    positions = 0
    if config.text("model_type").lower() in _LEARNED_POSITIONS:
        positions = facts.max_position_embeddings
    return (matrices * facts.vocab_size + positions) * facts.hidden_size
