"""What drafts tokens for a model: a model of its own, or further layers of the model itself (MTP).

vLLM loads it on the devices of the last stage, counts its weights among the model's, and gives its
layers blocks of the same cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.weights import DTYPE_BYTES
from lmi_backend.units import human_bytes

if TYPE_CHECKING:
    from lmi_backend.sizing.kv_layout import KvLayout
    from lmi_backend.sizing.model_facts import ModelFacts

COMPUTED: Final = "computed from config.json"
"""Where weight_bytes is from when no file of weights says it."""
_MODEL_BYTES: Final = 2


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What is loaded in addition to a model, as far as it can be counted."""

    name: str
    """For people."""
    weight_bytes: int = 0
    """In memory, of all devices, in addition to those of the model."""
    layer_values: int = 0
    """Numbers a layer caches for one token, before they are split over devices."""
    kv_heads: int = 1
    """Devices over which these can be split."""
    layers: int = 0
    """Layers with a KV cache."""
    step_values: int = 0
    """16-bit numbers that a token takes in its pass, which follows the model's."""
    uncounted: str = ""
    """Its parts that are not counted, or why nothing is; empty if all are."""

    def __str__(self) -> str:
        counted = [f"{human_bytes(self.weight_bytes)} weights"] if self.weight_bytes else []
        counted += [f"the cache of {self.layers} layer(s)"] if self.layers else []
        counted += ["its steps"] if self.step_values else []
        whole = " and ".join([", ".join(counted[:-1]), counted[-1]] if counted[1:] else counted)
        parts = [f"counted: {whole}"] if counted else []
        parts += [f"not counted: {self.uncounted}"] if self.uncounted else []
        return f"{self.name}: {'; '.join(parts)}"

    @property
    def without_cache(self) -> Draft:
        """The same, where the layers of the model do not all share blocks."""
        reason = "its cache, as the model's own layers are of several kinds"
        return self if not self.layers else replace(self, layers=0, uncounted=reason)

    def token_values(self, tensor: int) -> int:
        """Return the numbers all its layers cache for one token on one of `tensor` devices."""
        return math.ceil(self.layer_values / min(tensor, self.kv_heads)) * self.layers


def draft_model(facts: ModelFacts, name: str, *, shares_embeddings: bool) -> Draft:
    """Return a model that drafts for another.

    Args:
        facts: its own.
        name: for people.
        shares_embeddings: whether it uses the matrices of the other (EAGLE).
    """
    weights: float = facts.weight_bytes
    if shares_embeddings and facts.weight_source == COMPUTED:
        weights -= _matrices(facts)
    return Draft(
        name=name,
        weight_bytes=int(weights * _scale(facts)),
        layer_values=facts.kv_values_per_token_and_layer,
        kv_heads=1 if facts.is_mla else facts.num_kv_heads,
        layers=facts.num_kv_layers,
        step_values=_step_values(facts),
    )


def mtp_layers(facts: ModelFacts) -> Draft | None:
    """Return the layers of a model that predict further tokens; None if it has none.

    Files of weights have them. Where only config.json is known, each counts as an average layer,
    with a matrix that joins the hidden state and the token.
    """
    count = facts.num_mtp_layers
    if not count:
        return None
    layer = (facts.weight_bytes - _matrices(facts)) / facts.num_layers
    joined = 2 * facts.hidden_size**2 * DTYPE_BYTES.get(facts.dtype, _MODEL_BYTES)
    is_computed = facts.weight_source == COMPUTED
    return Draft(
        name=f"{count} MTP layer(s) of the model",
        weight_bytes=int(count * (layer + joined) * _scale(facts)) if is_computed else 0,
        layer_values=facts.kv_values_per_token_and_layer,
        kv_heads=1 if facts.is_mla else facts.num_kv_heads,
        layers=count,
        # A layer of MTP joins the model's hidden state and the token's embedding.
        step_values=_step_values(facts) + 2 * facts.hidden_size,
    )


def _step_values(facts: ModelFacts) -> int:
    """Return what a token has in a pass: three hidden states, and the wider of the two blocks."""
    attention = facts.head_dim * 2 * (facts.num_heads + facts.num_kv_heads)
    mlp = 3 * facts.intermediate_size if facts.has_dense_layers else 0
    return 3 * facts.hidden_size + max(attention, mlp)


def counted_draft(facts: ModelFacts, layout: KvLayout) -> Draft | None:
    """Return what drafts, marked as without a counted cache where its cache is not counted."""
    draft = facts.draft
    is_whole = draft is None or layout.is_uniform or joins_layers(facts)
    return draft if draft is None or is_whole else draft.without_cache


def joins_layers(facts: ModelFacts) -> bool:
    """Tell whether what drafts has layers like the model's own, among layers of other kinds."""
    draft, wide = facts.draft, facts.wide
    is_mixed = facts.local.layers or facts.states.layers
    if draft is None or not draft.layers or not is_mixed:
        return False
    own = facts.kv_values_per_token_and_layer
    return draft.layer_values == (2 * wide.kv_heads * wide.head_dim if wide else own)


def _matrices(facts: ModelFacts) -> float:
    matrix = facts.vocab_size * facts.hidden_size * DTYPE_BYTES.get(facts.dtype, _MODEL_BYTES)
    return min(facts.weight_bytes, matrix * (1 if facts.ties_embeddings else 2))


def _scale(facts: ModelFacts) -> float:
    """Return bytes in memory for one stored byte: what is not quantised is served in 16 bits."""
    return 1.0 if facts.quantization else _MODEL_BYTES / DTYPE_BYTES.get(facts.dtype, _MODEL_BYTES)
