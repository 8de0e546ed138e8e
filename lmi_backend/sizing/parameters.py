"""Count a model's parameters from its config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lmi_backend.sizing.attention_parameters import (
    attention_parameters,
    compressing_parameters,
    whole_parameters,
)
from lmi_backend.sizing.config_fields import ConfigFields
from lmi_backend.sizing.experts import vision_expert_share
from lmi_backend.sizing.kv_layers import (
    count_borrowing,
    has_low_rank_gates,
    read_delta_shape,
    read_mamba_shape,
)
from lmi_backend.sizing.layer_kinds import LayerKinds, layer_kinds, named_kinds, repeated_layers
from lmi_backend.sizing.mlp_width import PLAIN_MLP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lmi_backend.sizing.model_facts import ModelFacts

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


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """Numbers of parameters, split by how quantisation treats them."""

    embeddings: int
    """Input embeddings and positions."""
    head: int
    """Output head, if it is not the same matrix."""
    parts: tuple[Part, ...]
    """Matrices of the layers."""
    plain: int
    """Parameters of the layers that are never quantised: norms, and what chooses experts."""
    vision: int = 0
    """Of encoders of images and sounds."""

    @property
    def total(self) -> int:
        return int(
            self.embeddings
            + self.head
            + self.plain
            + self.vision
            + sum(p.parameters for p in self.parts)
        )


def count_parameters(config: ConfigFields, facts: ModelFacts) -> ParameterCount:
    """Count the language model's parameters; biases are left out, they are less than 0.2 %.

    Extra layers for speculation are left out too.

    Args:
        config: the model's config.json.
        facts: what was read of it; its weight fields are not used.
    """
    kinds = layer_kinds(config, facts.num_layers, facts.num_experts)
    parts = (*_mixer_parts(config, facts, kinds), *_mlp_parts(config, facts, kinds))
    routers = len(kinds.experts) * facts.hidden_size * facts.num_experts
    return ParameterCount(
        embeddings=_embeddings(config, facts),
        head=0 if facts.ties_embeddings else facts.vocab_size * facts.hidden_size,
        parts=tuple(part for part in parts if part.layers),
        plain=routers
        + (2 * facts.num_layers + 1) * facts.hidden_size
        + compressing_parameters(config, facts),
        vision=facts.vision_parameters,
    )


def _mixer_parts(config: ConfigFields, facts: ModelFacts, kinds: LayerKinds) -> Iterator[Part]:
    """Yield what mixes the tokens of a layer."""
    encoders = encoder_layers(config, facts)
    # A decoder that sees an encoder's output has a second, crossed attention.
    crossed = facts.num_layers - encoders if facts.is_encoder_decoder else 0
    names = ("self_attn", "self_attn.q_proj", "mixer.q_proj", "attn.wq_a")
    attention, wide = kinds.attention, _wide_layers(config, facts)
    narrow = tuple(at for at in attention if at not in wide)
    each = float(attention_parameters(config, facts))
    share = _copies(config) * _shared_blocks(config, attention)
    each *= share
    lent = 2 * facts.hidden_size * facts.head_dim * facts.num_kv_heads
    borrowing = count_borrowing(config, narrow)
    whole = (len(narrow) + crossed) * each - borrowing * lent
    kept = len(narrow) * share * whole_parameters(config, facts)
    keys = 0.0 if kept else (len(narrow) - borrowing) * share * lent
    yield Part(modules=names, layers=narrow, parameters=whole, whole=kept, keys=keys)
    if facts.wide:
        # Where values are the keys (`attention_k_eq_v`), vLLM keeps both all the same.
        heads = 2 * facts.num_heads + 2 * facts.wide.kv_heads
        own = facts.hidden_size * facts.wide.head_dim * heads
        lent = 2 * facts.hidden_size * facts.wide.head_dim * facts.wide.kv_heads
        borrowing = count_borrowing(config, wide)
        whole = len(wide) * own - borrowing * lent
        keys = (len(wide) - borrowing) * lent
        yield Part(modules=names, layers=wide, parameters=whole, keys=keys)
    state = _state_layer(config, facts)
    yield Part(
        modules=("linear_attn.out_proj", "linear_attn", "mixer.in_proj", "mamba", "conv.in_proj"),
        layers=kinds.states,
        parameters=len(kinds.states) * state,
    )


def _copies(config: ConfigFields) -> int:
    """Return how many attentions and MLPs a layer has."""
    return 2 if config.text("model_type") == "longcat_flash" else 1


def _shared_blocks(config: ConfigFields, layers: tuple[int, ...]) -> float:
    """Return the share of its own that a layer has: some families use a few blocks again."""
    if config.text("model_type") == "zamba2" and layers:
        return config.number("num_mem_blocks", default=1) / len(layers)
    if repeated := repeated_layers(config):
        stored, run = repeated
        return stored / run
    return 1.0


def _wide_layers(config: ConfigFields, facts: ModelFacts) -> tuple[int, ...]:
    kinds = named_kinds(config, facts.num_layers)
    if not facts.wide or not kinds:
        return ()
    return tuple(at for at, kind in enumerate(kinds) if kind == "full_attention")


def _mlp_parts(config: ConfigFields, facts: ModelFacts, kinds: LayerKinds) -> Iterator[Part]:
    """Yield what a layer has for each token alone."""
    mlp = float(_mlp(config, facts, facts.intermediate_size))
    shared = config.number("num_kv_shared_layers", default=0, least=0)
    doubled = shared if config.get("use_double_wide_mlp") is True else 0
    names = ("mlp.gate_proj", "mlp.down_proj", "mixer.down_proj", "feed_forward.w1", "mlp")
    dense = kinds.dense
    if _copies(config) > 1:
        dense = tuple(range(facts.num_layers))
    elif config.text("model_type") == "zamba2":
        dense = kinds.attention
    mlp *= _copies(config) * _shared_blocks(config, dense)
    yield Part(modules=names, layers=dense, parameters=(len(dense) + doubled) * mlp)
    # Nemotron's experts see a narrower vector, which two matrices make and take back.
    latent = config.number("moe_latent_size", "routed_expert_hidden_size", default=0)
    hidden = latent or facts.hidden_size
    expert = _mlp(config, facts, facts.expert_intermediate_size) * hidden // facts.hidden_size
    count = len(kinds.experts)
    # Gemma's layers have both, side by side.
    is_beside = bool(set(kinds.dense) & set(kinds.experts))
    yield Part(
        modules=_BESIDE_MLP if is_beside else _EXPERTS,
        layers=kinds.experts,
        parameters=count * facts.num_experts * expert * vision_expert_share(config),
        is_expert=True,
    )
    joined = _shared_experts(config, facts) + 2 * latent * facts.hidden_size
    yield Part(
        modules=(
            "mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj",
            "mixer.shared_experts.down_proj", "mlp.shared_experts", "mlp.shared_expert",
            "ffn.shared_experts.w2",
        ),
        layers=kinds.experts,
        parameters=count * joined,
        whole=count * 2 * latent * facts.hidden_size,
    )  # fmt: skip
    if width := config.number("hidden_size_per_layer_input", default=0, least=0):
        # Gemma's gate and projection for each layer's own embeddings.
        every = tuple(range(facts.num_layers))
        parameters = 3 * facts.num_layers * width * facts.hidden_size
        yield Part(
            modules=("per_layer_input_gate",),
            layers=every,
            parameters=parameters,
            whole=parameters * 2 / 3,
        )


def encoder_layers(config: ConfigFields, facts: ModelFacts) -> int:
    """Return how many of the layers are an encoder's."""
    if not facts.is_encoder_decoder:
        return 0
    return config.number("num_layers", "encoder_layers", default=facts.num_layers // 2)


def _mlp(config: ConfigFields, facts: ModelFacts, width: int) -> int:
    kind = config.text("model_type").lower()
    if kind == "qwen":
        # The first Qwen writes the width of gate and up together.
        width //= 2
    gated = kind not in PLAIN_MLP
    if kind in {"t5", "mt5", "umt5"}:
        gated = config.text("feed_forward_proj").startswith("gated")
    return (3 if gated else 2) * facts.hidden_size * width


def _shared_experts(config: ConfigFields, facts: ModelFacts) -> int:
    """Return the parameters of the experts that every token of one layer passes."""
    names = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    others = ("shared_intermediate_size", "share_expert_dim")
    width = config.number(*names, *others, default=0, least=0)
    counts = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts",
              "num_shared_expert")  # fmt: skip
    count = config.number(*counts, default=0, least=0)
    if config.text("model_type").startswith("llama4"):
        count = 1
    return _mlp(config, facts, width or count * facts.expert_intermediate_size)


def _state_layer(config: ConfigFields, facts: ModelFacts) -> int:
    """Return about how many parameters the mixer of a layer without KV cache has."""
    if config.get("conv_L_cache") is not None:
        return 4 * facts.hidden_size**2
    if delta := read_delta_shape(config):
        if has_low_rank_gates(config):
            # Kimi's: queries, keys, values, result, and two gates of low rank.
            wide = delta.value_heads * delta.value_dim
            return facts.hidden_size * (4 * wide + 3 * delta.value_dim) + 2 * wide * delta.key_dim
        values = delta.value_heads * delta.value_dim
        # In: queries, keys, values and the gate; two numbers a head. Out: the values.
        return facts.hidden_size * (delta.convolved + 2 * values + 2 * delta.value_heads)
    mamba = read_mamba_shape(config)
    if mamba and mamba.heads:
        return facts.hidden_size * (mamba.convolved + 2 * mamba.width + mamba.heads)
    if mamba:
        # Mamba-1: steps of low rank, and a transition for each channel and number of its state.
        rank = -(-facts.hidden_size // 16)
        beside = 2 * rank + 3 * mamba.state + 8
        return mamba.width * (3 * facts.hidden_size + beside)
    expand = config.number("mamba_expand", "expand", default=2)
    # In: twice the expanded width; out: once.
    return 3 * expand * facts.hidden_size**2


def _embeddings(config: ConfigFields, facts: ModelFacts) -> int:
    own = config.number("hidden_size_per_layer_input", default=0, least=0)
    if own:
        # A vector for each word and layer; a matrix that makes the prompt's of its embedding.
        words = config.number("vocab_size_per_layer_input", default=facts.vocab_size)
        own *= facts.num_layers * words
    positions = 0
    if config.text("model_type").lower() in _LEARNED_POSITIONS:
        positions = facts.max_position_embeddings
    return (facts.vocab_size + positions) * facts.hidden_size + own
