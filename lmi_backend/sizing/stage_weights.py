"""How many bytes of a model's weights are on one device of each stage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.module_bits import MXFP4_BITS
from lmi_backend.sizing.step import HOPPER
from lmi_backend.sizing.weights import DTYPE_BYTES

if TYPE_CHECKING:
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Release, Step

_MODEL_BYTES: Final = 2
"""Rotations of the positions are kept in the model's 16 bits."""
_MARLIN: Final = (128, 256)
"""Multiples to which vLLM widens MXFP4's experts, and their hidden vectors, for most kernels."""
_TRITON: Final = (256, 1)
"""The same for Triton's, which it took on Hopper."""
_LAST_TRITON: Final[Release] = (0, 18)


def stage_weights(
    facts: ModelFacts, stages: list[int], tensor: int, step: Step, scale: float
) -> list[int]:
    """Return the bytes of weights on one device of each stage.

    Most of a layer is split. Norms, routers and what makes latent vectors are whole on each device,
    and of keys and values there are as many parts as KV heads. The rotations of all positions are
    whole on each, too: for ten million they take 2.5 GiB.
    """
    matrix = float(facts.vocab_size * facts.hidden_size * DTYPE_BYTES.get(facts.dtype, 2))
    matrices = matrix if facts.ties_embeddings else 2 * matrix
    # Of tiny or oddly stored models the embeddings may seem larger than everything.
    matrix *= min(1.0, facts.weight_bytes / matrices)
    matrices = min(matrices, facts.weight_bytes)
    layer = _layer_weights(facts, facts.weight_bytes - matrices, tensor, step) / facts.num_layers
    sizes = [layers * layer for layers in stages]
    sizes[0] += matrix / tensor
    # A tied matrix is there once more if the head is on another device.
    if not facts.ties_embeddings or len(stages) > 1:
        sizes[-1] += matrix / tensor
    rotations = (
        0 if facts.is_mla else facts.max_position_embeddings * (facts.rotated or facts.head_dim)
    )
    taken = [math.ceil(size * scale) + rotations * _MODEL_BYTES for size in sizes]
    if facts.draft is not None:
        taken[-1] += math.ceil(facts.draft.weight_bytes / tensor)
    return taken


def _layer_weights(facts: ModelFacts, total: float, tensor: int, step: Step) -> float:
    """Return the bytes on one device of all layers together."""
    whole = min(facts.whole_bytes, total)
    keys = min(facts.key_bytes, total - whole)
    split = total - whole - keys + facts.unfolding_bytes + _expert_padding(facts, tensor, step)
    return whole + keys / min(tensor, facts.num_kv_heads) + split / tensor


def _expert_padding(facts: ModelFacts, tensor: int, step: Step) -> float:
    """Return the bytes of all devices by which vLLM widens MXFP4's experts for its kernels."""
    if facts.quantization != "mxfp4" or not facts.num_experts:
        return 0
    is_triton = step.capability // 10 == HOPPER // 10 and step.release <= _LAST_TRITON
    widths, hiddens = _TRITON if is_triton else _MARLIN
    width = facts.expert_intermediate_size / tensor
    padded = math.ceil(width / widths) * widths * math.ceil(facts.hidden_size / hiddens) * hiddens
    added = padded - width * facts.hidden_size
    return 3 * facts.num_layers * facts.num_experts * added * tensor * MXFP4_BITS / 8
