"""What a model's folder says about its size: its shape, its cache and its weights.

What drafts tokens for a model is a model of its own, or further layers of the model itself (MTP).
vLLM loads it on the devices of the last stage, counts its weights among the model's, and gives its
layers blocks of the same cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from lmi_backend.printable import human_bytes
from lmi_backend.sizing.config_fields import ConfigFields, read_config, unread_fields
from lmi_backend.sizing.kv_layers import CachedLayers, read_cached_layers
from lmi_backend.sizing.quantization import DTYPE_BYTES
from lmi_backend.sizing.shape import Shape, read_shape
from lmi_backend.sizing.weights import COMPUTED, Weights, computed_weights, weights_on_disk

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TALKER: Final = "talker_config"
_MODEL_BYTES: Final = 2


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    shape: Shape
    cache: CachedLayers
    weights: Weights
    drafted_tokens: int = 0
    """Tokens that are guessed in a step: layers with a state keep one for each."""
    draft: Draft | None = None
    """What drafts tokens for it; None if nothing does."""
    unread: tuple[str, ...] = ()
    """Fields of config.json that nobody has read and that may mean memory."""
    assumed: tuple[str, ...] = ()
    """Fields that config.json lacks, so that its class's defaults were taken."""
    unknown_class: str = ""
    """config.json's model_type if its config class is not known here."""

    @property
    def matrices(self) -> int:
        """Bytes of the embeddings and of the head, which is the same matrix where it is tied."""
        shape = self.shape
        matrix = shape.vocab_size * shape.hidden_size * DTYPE_BYTES.get(shape.dtype, _MODEL_BYTES)
        # Of tiny or oddly stored models the embeddings may seem larger than everything.
        return min(self.weights.total, matrix if shape.ties_embeddings else 2 * matrix)


def read_model_facts(
    folder: Path, overrides: Mapping[str, object] | None = None
) -> ModelFacts | None:
    """Read the facts of the model in a local folder.

    Args:
        overrides: fields that the engine is told to take instead of those in the file.

    Returns:
        The facts; None if the folder has no config.json.

    Raises:
        ConfigurationError: config.json is broken, or lacks a number or has an absurd one.
    """
    config = read_config(folder, overrides)
    if config is None:
        return None
    facts = _facts(config)
    computed = facts.weights.total
    total, source = weights_on_disk(folder) or (computed, COMPUTED)
    if source != COMPUTED and overrides and (written := read_config(folder)):
        # Layers that are left out are not loaded.
        total = total * computed // max(1, _facts(written).weights.total)
    if _TALKER in config.outer and computed < total:
        # vLLM does not load the part that speaks; no index tells what each part takes.
        total, source = computed, COMPUTED
    return replace(
        facts,
        weights=replace(facts.weights, total=total, source=source),
        unread=unread_fields(config),
        assumed=tuple(sorted(config.assumed)),
        unknown_class=config.unknown_class,
    )


def _facts(config: ConfigFields) -> ModelFacts:
    """Return what config.json alone says."""
    shape = read_shape(config)
    cache = read_cached_layers(config, shape.num_kv_heads, shape.head_dim)
    return ModelFacts(shape=shape, cache=cache, weights=computed_weights(config, shape, cache))


def valid_tensor_degrees(facts: ModelFacts, limit: int) -> list[int]:
    """Return the tensor parallel degrees up to the limit that vLLM accepts.

    Every device needs as many attention heads as the others. It also needs an equal share of the KV
    heads. If there are fewer KV heads than devices, each is shared by equally many devices.
    """
    kv_heads = facts.shape.num_kv_heads
    return [
        degree
        for degree in divisors(facts.shape.num_heads, limit)
        # The one latent vector of MLA is on every device.
        if facts.cache.is_mla or kv_heads % degree == 0 or degree % kv_heads == 0
    ]


def divisors(number: int, limit: int) -> list[int]:
    small = [each for each in range(1, math.isqrt(number) + 1) if number % each == 0]
    return [each for each in sorted({*small, *(number // each for each in small)}) if each <= limit]


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


def draft_model(facts: ModelFacts, name: str, *, shares_embeddings: bool) -> Draft:
    """Return a model that drafts for another.

    Args:
        shares_embeddings: whether it uses the matrices of the other (EAGLE).
    """
    weights: float = facts.weights.total
    if shares_embeddings and facts.weights.source == COMPUTED:
        weights -= facts.matrices
    return Draft(
        name=name,
        weight_bytes=int(weights * _scale(facts)),
        layer_values=facts.cache.values,
        kv_heads=1 if facts.cache.is_mla else facts.shape.num_kv_heads,
        layers=facts.cache.layers,
        step_values=_step_values(facts),
    )


def mtp_layers(facts: ModelFacts) -> Draft | None:
    """Return the layers of a model that predict further tokens; None if it has none.

    Files of weights have them. Where only config.json is known, each counts as an average layer,
    with a matrix that joins the hidden state and the token.
    """
    shape = facts.shape
    count = shape.num_mtp_layers
    if not count:
        return None
    layer = (facts.weights.total - facts.matrices) / shape.num_layers
    joined = 2 * shape.hidden_size**2 * DTYPE_BYTES.get(shape.dtype, _MODEL_BYTES)
    is_computed = facts.weights.source == COMPUTED
    return Draft(
        name=f"{count} MTP layer(s) of the model",
        weight_bytes=int(count * (layer + joined) * _scale(facts)) if is_computed else 0,
        layer_values=facts.cache.values,
        kv_heads=1 if facts.cache.is_mla else shape.num_kv_heads,
        layers=count,
        # A layer of MTP joins the model's hidden state and the token's embedding.
        step_values=_step_values(facts) + 2 * shape.hidden_size,
    )


def _step_values(facts: ModelFacts) -> int:
    """Return what a token has in a pass: three hidden states, and the wider of the two blocks."""
    shape = facts.shape
    attention = shape.head_dim * 2 * (shape.num_heads + shape.num_kv_heads)
    mlp = 3 * shape.intermediate_size if shape.has_dense_layers else 0
    return 3 * shape.hidden_size + max(attention, mlp)


def _scale(facts: ModelFacts) -> float:
    """Return bytes in memory for one stored byte: what is not quantised is served in 16 bits."""
    stored = DTYPE_BYTES.get(facts.shape.dtype, _MODEL_BYTES)
    return 1.0 if facts.shape.quantization else _MODEL_BYTES / stored
