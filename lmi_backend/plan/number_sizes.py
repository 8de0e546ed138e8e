"""Bytes of a number of the weights and of the cache, by an engine's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lmi_backend.options.table import common as opt
from lmi_backend.options.table import vllm
from lmi_backend.sizing.weights import DTYPE_BYTES

if TYPE_CHECKING:
    from lmi_backend.options import LmiOptions
    from lmi_backend.sizing.model_facts import ModelFacts
    from lmi_backend.sizing.step import Release

_BYTES: Final = {**DTYPE_BYTES, "int8": 1}
_RUNTIME_QUANTISATION: Final = {
    "fp8": 8, "bitsandbytes": 4, "bitsandbytes4": 4, "bitsandbytes8": 8,
}  # fmt: skip
_CACHE_FROM_FILE: Final[Release] = (0, 12)
"""The release of vLLM that takes a cache of 8 bits where a ModelOpt checkpoint has its scales."""
_NARROW: Final = (
    ("fp8_ds_mla", 656 / 576),
    ("nvfp4_ds_mla", 352 / 576),
    ("nvfp4", 0.5 + 1 / 16),
    ("k8v4", 0.78),
    ("k3v4", 0.47),
    ("4bit", 0.53),
    ("3bit", 0.41),
    ("int4", 0.5 + 4 / 128),
    ("per_token_head", 1 + 4 / 128),
    ("fp8", 1.0),
    ("int8", 1.0),
)
"""Bytes of a number of the cache with its scales, for types with this text in their name. Sparse
attention packs a vector of 8 bits with its scales and its rotations, which have 16."""


def cache_bytes(options: LmiOptions, facts: ModelFacts, release: Release) -> float:
    """Return the bytes of one cached number."""
    word = str(options[vllm.KV_CACHE_DTYPE] or "auto")
    if facts.is_mla and facts.index_bytes and word.startswith("fp8"):
        word = "fp8_ds_mla"
    found = next((size for name, size in _NARROW if name in word), 0.0)
    if found:
        return found
    is_vllm = options.choice.spec.implementation.counts_memory_as_vllm
    if word == "auto" and is_vllm and facts.caches_in_8_bits and release >= _CACHE_FROM_FILE:
        return 1
    return _BYTES.get(word) or model_bytes(options, facts)


def model_bytes(options: LmiOptions, facts: ModelFacts) -> int:
    """Return the bytes of one number of what is not quantised, in memory."""
    dtype = options[opt.DTYPE]
    if dtype == "auto":
        # Others than Transformers serve a model stored in float32 in 16 bits.
        cpu_cache = options.choice.spec.implementation.cpu_cache
        return _BYTES.get(facts.dtype, 2) if cpu_cache else 2
    return _BYTES[dtype]


def weight_scale(options: LmiOptions, facts: ModelFacts) -> float:
    """Return bytes in memory for one byte of the checkpoint."""
    if facts.quantization:
        return 1.0
    stored = _BYTES.get(facts.dtype, 2)
    bits = _RUNTIME_QUANTISATION.get(options[vllm.QUANTIZE] or "")
    return (bits / 8 if bits else model_bytes(options, facts)) / stored
