"""Facts of models, of fields without their parts."""

from dataclasses import fields, replace
from typing import Any

from lmi_backend.sizing.kv_layers import CachedLayers
from lmi_backend.sizing.model_facts import ModelFacts
from lmi_backend.sizing.shape import Shape
from lmi_backend.sizing.weights import Weights

_PARTS = {"shape": Shape, "cache": CachedLayers, "weights": Weights}


def _parted(given: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the fields of each part, and those of the facts themselves."""
    names = {part: {each.name for each in fields(kind)} for part, kind in _PARTS.items()}
    parts = {part: {n: v for n, v in given.items() if n in known} for part, known in names.items()}
    return parts, {
        n: v for n, v in given.items() if not any(n in known for known in names.values())
    }


def make_facts(**given: Any) -> ModelFacts:
    parts, own = _parted(given)
    return ModelFacts(**{part: kind(**parts[part]) for part, kind in _PARTS.items()}, **own)


def with_fields(facts: ModelFacts, **given: Any) -> ModelFacts:
    """Return facts with other values of fields of any part."""
    parts, own = _parted(given)
    changed = {part: replace(getattr(facts, part), **parts[part]) for part in _PARTS}
    return replace(facts, **changed, **own)


LLAMA_3_8B = make_facts(
    architecture="LlamaForCausalLM", num_layers=32, hidden_size=4096, num_heads=32, num_kv_heads=8,
    head_dim=128, vocab_size=128256, intermediate_size=14336, max_position_embeddings=8192,
    dtype="bfloat16", total=16_060_522_496, source="safetensors index", values=2048, layers=32,
    is_mla=False, is_encoder_decoder=False, num_experts=0, quantization="",
)  # fmt: skip
