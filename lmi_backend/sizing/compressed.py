"""The cache of DeepSeek-V4: windows, compressed text, and what is still to be compressed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.sizing.architectures import read_architectures
from lmi_backend.sizing.kv_groups import KvLayout, tokens_in_flight

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Step

_NAMES: Final = ("deepseek_v4", "deepseekv4")
_BLOCK: Final = 256
"""Tokens of a block of compressed text."""
_WINDOW_BLOCK: Final = 64
_VECTOR: Final = 584
"""Bytes of a vector with its rotations and scales."""
_ALIGNED: Final = 576
_FEW, _MANY = 4, 128
"""Tokens that a layer compresses into one."""


@dataclass(frozen=True)
class CompressedLayers:
    """How many layers compress the text, and what they keep in addition."""

    few: int
    """Layers that compress four tokens into one, and have an indexer."""
    many: int
    """Layers that compress 128 tokens into one."""
    index_bytes: int
    """Of an indexer's compressed token."""


def read_compressed_layers(config: ConfigFields, num_layers: int) -> CompressedLayers | None:
    """Return these layers; None if the model is another."""
    ratios = config.get("compress_ratios")
    named = (config.text("model_type"), *read_architectures(config))
    is_other = not any(name.lower().startswith(_NAMES) for name in named)
    if is_other or not isinstance(ratios, list):
        return None
    own = ratios[:num_layers]
    width = config.number("index_head_dim", default=128)
    index = width + 4 * -(-width // 128)
    return CompressedLayers(own.count(_FEW), own.count(_MANY), index)


def compressed_layout(
    facts: ModelFacts, compressed: CompressedLayers, step: Step, layers: int
) -> KvLayout:
    """Return the layout of the cache on a device with so many of the layers.

    The layers' text shares a block; their windows are divided into groups that are no larger.
    """
    share = layers / facts.num_layers
    few, many = (math.ceil(count * share) for count in (compressed.few, compressed.many))
    vectors = _BLOCK // _FEW
    of_few = _aligned(vectors * _VECTOR) + _aligned(vectors * compressed.index_bytes)
    text = few * of_few + many * _aligned(_BLOCK // _MANY * _VECTOR)
    window = _aligned(_WINDOW_BLOCK * _VECTOR)
    block = max(text, window)
    groups = math.ceil(layers * window / block)
    flight = tokens_in_flight(step)
    # Tokens wait for their compression: where it overlaps, twice as many.
    waiting = [
        (seen - 1 + flight, size)
        for seen, size, count in ((2 * _FEW, 4, few), (_MANY, 8, many))
        if count
    ]
    return KvLayout(
        block_size=_BLOCK,
        full_block=_BLOCK,
        block_bytes=block,
        full_groups=1 if text else 0,
        local_groups=groups,
        local_tokens=facts.local.window - 1 + flight,
        local_block=_WINDOW_BLOCK,
        further=tuple(waiting),
        groups=groups + len(waiting) + 1,
    )


def _aligned(size: int) -> int:
    return math.ceil(size / _ALIGNED) * _ALIGNED
