"""How many parameters the attention of a layer has, and which of them no device shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.kv_layers import indexer_share, read_delta_shape
from lmi_backend.sizing.layer_kinds import repeated_layers

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields
    from lmi_backend.sizing.model_facts import ModelFacts

_GATED: Final = ("afmoe", "muse_glimmer")
"""Families whose attention always has a gate as wide as the queries."""


def whole_parameters(config: ConfigFields, facts: ModelFacts) -> int:
    """Return the parameters of one layer's attention that each device has whole.

    vLLM splits what belongs to heads. What makes the latent vectors before them is on all devices,
    and so is the indexer of sparse attention.
    """
    hidden = facts.hidden_size
    low_rank = config.number("q_lora_rank", default=0)
    if config.get("kv_lora_rank") is None:
        is_grouped = config.number("o_lora_rank", default=0) > 0
        chosen = _chosen(config, facts, low_rank)
        return hidden * (low_rank + facts.head_dim) + chosen if is_grouped else 0
    latent = config.number("kv_lora_rank") + config.number("qk_rope_head_dim", least=0)
    share = indexer_share(config, facts.num_layers)
    indexer = int(share * _indexer(config, hidden, low_rank or hidden))
    return hidden * (low_rank + latent) + indexer


def unfolding_bytes(config: ConfigFields, facts: ModelFacts) -> int:
    """Return the bytes of what vLLM makes besides the weights of all layers' latent attention.

    It keeps a second copy, of 16 bits, of the matrices that make keys and values of latent vectors.
    """
    width = config.number("qk_nope_head_dim") + config.number("v_head_dim", default=0)
    each = 2 * config.number("kv_lora_rank") * facts.num_heads * width
    return each * facts.num_kv_layers


def attention_parameters(config: ConfigFields, facts: ModelFacts) -> int:
    """Return the parameters of one layer's attention."""
    hidden, heads = facts.hidden_size, facts.num_heads
    if config.get("kv_lora_rank") is None:
        # Qwen3-Next and later have a gate as wide as the queries.
        family = config.text("model_type")
        is_gated = family.startswith(_GATED) or (
            family.startswith(("qwen", "hrm"))
            and (read_delta_shape(config) is not None or repeated_layers(config) is not None)
        )
        gated = config.flag("attn_output_gate", default=is_gated)
        if low_rank := config.number("o_lora_rank", default=0):
            return _grouped_attention(config, facts, low_rank)
        seen = config.number("attention_hidden_size", default=hidden)
        out = heads * hidden
        return facts.head_dim * (seen * (heads + 2 * facts.num_kv_heads + gated * heads) + out)
    rope = config.number("qk_rope_head_dim", least=0)
    latent = config.number("kv_lora_rank")
    value = config.number("v_head_dim", default=hidden // heads)
    query = heads * facts.head_dim
    low_rank = config.number("q_lora_rank", default=0)
    queries = low_rank * (hidden + query) if low_rank else hidden * query
    keys = hidden * (latent + rope) + latent * heads * (facts.head_dim - rope + value)
    share = indexer_share(config, facts.num_layers)
    indexer = int(share * _indexer(config, hidden, low_rank or hidden))
    return queries + keys + heads * value * hidden + indexer


def _grouped_attention(config: ConfigFields, facts: ModelFacts, low_rank: int) -> int:
    """Return the parameters of DeepSeek-V4's attention: one head's keys are its values too."""
    hidden, queries = facts.hidden_size, facts.num_heads * facts.head_dim
    first = config.number("q_lora_rank", default=hidden)
    groups = config.number("o_groups", default=1)
    out = queries * low_rank + groups * low_rank * hidden
    chosen = _chosen(config, facts, first)
    return first * (hidden + queries) + hidden * facts.head_dim + out + chosen


def _chosen(config: ConfigFields, facts: ModelFacts, low_rank: int) -> int:
    """Return what makes the indexer's queries, for each layer: only some have an indexer."""
    if facts.compressed is None:
        return 0
    width = config.number("index_head_dim", default=0) * config.number("index_n_heads", default=0)
    return low_rank * width * facts.compressed.few // facts.num_layers


def compressing_parameters(config: ConfigFields, facts: ModelFacts) -> int:
    """Return the parameters that compress the text of all layers, whole on each device (V4).

    Each is a vector's content and its gate; where compressed texts overlap, both twice. Indexers
    have their own. What joins streams of hidden states has 32 bits, and counts as two here.
    """
    if facts.compressed is None:
        return 0
    hidden, streams = facts.hidden_size, config.number("hc_mult", default=0)
    index = config.number("index_head_dim", default=0)
    few = facts.compressed.few * (4 * (facts.head_dim + index) + config.number("index_n_heads"))
    many = facts.compressed.many * 2 * facts.head_dim
    joins = 2 * facts.num_layers * 2 * (2 + streams) * streams**2
    return hidden * (few + many + joins)


def _indexer(config: ConfigFields, hidden: int, low_rank: int) -> int:
    """Return the parameters of what chooses the tokens that sparse attention sees."""
    width = config.number("index_head_dim", default=0, least=0)
    heads = config.number("index_n_heads", default=0, least=0)
    return width * (heads * low_rank + hidden) + heads * hidden
