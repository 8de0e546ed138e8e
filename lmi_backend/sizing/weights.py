"""How many bytes a model's weights take: on disk, else by its config.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lmi_backend.bounded_files import read_bounded
from lmi_backend.sizing.module_bits import (
    MXFP4_BITS,
    algorithm_bits,
    grouped_bits,
    is_positive,
    module_bits,
)
from lmi_backend.sizing.parameters import count_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lmi_backend.sizing.config_fields import ConfigFields
    from lmi_backend.sizing.model_facts import ModelFacts

DTYPE_BYTES: Final = {
    "float64": 8,
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
"""Bytes of one number, by what config.json calls its type."""
# What training leaves beside the weights; adapters are loaded on their own.
_NOT_WEIGHTS = frozenset({"training_args.bin", "optimizer.bin", "scheduler.bin"})


def weights_on_disk(folder: Path) -> tuple[int, str] | None:
    """Return the bytes of the folder's weights and where the number is from; None if it has none.

    safetensors come before PyTorch's own format, as every engine prefers them. The index comes
    before the files. The files may be there twice (Mistral's "consolidated"), or not yet.
    """
    for index, pattern, source in (
        ("model.safetensors.index.json", "*.safetensors", "safetensors index"),
        ("pytorch_model.bin.index.json", "*.bin", "pytorch_model.bin index"),
    ):
        if total := _total_size(folder / index):
            return total, source
        if total := _file_sizes(folder, pattern):
            return total, "file sizes"
    return None


@dataclass(frozen=True)
class ComputedWeights:
    """Bytes of a model's weights by the shapes in config.json."""

    total: int
    experts: int
    """Of routed experts."""
    whole: int
    """What each device has whole that shares the layers: norms, routers, latent projections."""
    keys: int
    """Of what makes keys and values, which no more devices than KV heads share."""


def computed_weights(config: ConfigFields, facts: ModelFacts) -> ComputedWeights:
    """Return the bytes of the weights by the shapes in config.json.

    Embeddings and encoders are never quantised, a head only where the file names it. MXFP4
    quantises the experts only.
    """
    count = count_parameters(config, facts)
    plain = float(DTYPE_BYTES.get(facts.dtype, 2) * 8)
    quantization = quantization_config(config)
    bits = quantised_bits(quantization, facts.quantization) or plain
    modules = module_bits(quantization, bits, plain)
    has_4_bit_experts = config.get("expert_dtype") == "fp4"
    total = (count.embeddings + count.vision + count.plain) * plain
    total += count.head * (bits if quantization.get("lm_head") is True else modules.head)
    experts = keys = 0.0
    whole = count.plain * plain
    for part in count.parts:
        each = modules.average(part.modules, part.layers)
        if facts.quantization == "mxfp4" and not part.is_expert:
            each = plain
        elif part.is_expert and has_4_bit_experts:
            each = MXFP4_BITS
        total += part.parameters * each
        experts += part.parameters * each if part.is_expert else 0.0
        whole += part.whole * each
        keys += part.keys * each
    return ComputedWeights(*(round(bits / 8) for bits in (total, experts, whole, keys)))


def quantization_config(config: ConfigFields) -> Mapping[str, object]:
    """Return how the weights are quantised, by config.json or by ModelOpt's file next to it."""
    for name in ("quantization_config", "compression_config"):
        if isinstance(found := config.shared(name), dict):
            return found
    try:
        whole = json.loads(read_bounded(config.file.with_name("hf_quant_config.json")))
        found = whole["quantization"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {"quant_method": "modelopt", **found} if isinstance(found, dict) else {}


def weights_dtype(config: ConfigFields) -> str:
    """Return the type of what is not quantised.

    An unquantised file without one is of PyTorch's default, as old files are. A quantised file
    without one is of 16 bits; vLLM finds the same by itself.
    """
    name = config.shared(config.name_of("dtype", "torch_dtype"))
    if name is None:
        return "bfloat16" if quantization_config(config) else "float32"
    dtype = str(name).removeprefix("torch.")
    return dtype if dtype in DTYPE_BYTES else "bfloat16"


def quantization_method(config: ConfigFields) -> str:
    """Return how the weights are quantised; empty if they are not."""
    found = quantization_config(config)
    method = found.get("quant_method")
    if method is None and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        return "bitsandbytes"
    if method is None and found.get("config_groups"):
        return "compressed-tensors"
    return str(method or "").lower()


def keeps_cache_in_8_bits(quantization: Mapping[str, object]) -> bool:
    """Tell whether a checkpoint brings the scales of a KV cache of 8 bits."""
    scheme = quantization.get("kv_cache_scheme")
    is_scheme = isinstance(scheme, dict) and scheme.get("num_bits") == 8
    return is_scheme or str(quantization.get("kv_cache_quant_algo")).upper() == "FP8"


def has_4_bit_floats(quantization: Mapping[str, object]) -> bool:
    """Tell whether weights are quantised to NVFP4 or its like."""
    return "NVFP4" in json.dumps(quantization, default=str).upper() or any(
        isinstance(each, dict) and each.get("type") == "float" and each.get("num_bits") == 4
        for each in _weight_schemes(quantization)
    )


def _weight_schemes(quantization: Mapping[str, object]) -> list[object]:
    groups = quantization.get("config_groups")
    schemes = groups.values() if isinstance(groups, dict) else []
    return [scheme.get("weights") for scheme in schemes if isinstance(scheme, dict)]


def computes_in_8_bits(quantization: Mapping[str, object]) -> bool:
    """Tell whether a quantised model's activations are quantised to 8 bits too."""
    method = str(quantization.get("quant_method", "")).lower()
    if method in {"fp8", "fbgemm_fp8"} or quantization.get("quant_algo") == "FP8":
        return True
    groups = quantization.get("config_groups")
    schemes = groups.values() if isinstance(groups, dict) else []
    inputs = [scheme.get("input_activations") for scheme in schemes if isinstance(scheme, dict)]
    return any(isinstance(each, dict) and each.get("num_bits") == 8 for each in inputs)


def quantised_bits(quantization: Mapping[str, object], method: str) -> float:
    """Return the bits a quantised parameter takes with its scales; 0 if that is not known."""
    if method == "bitsandbytes":
        # One float32 scale for 64 weights, itself quantised to 8 bits by double quantisation.
        double = quantization.get("bnb_4bit_use_double_quant")
        return 8 if quantization.get("load_in_8bit") else 4 + (8 if double else 32) / 64
    if method == "mxfp4":
        return MXFP4_BITS
    if "fp8" in method or "int8" in method or method == "fbgemm_fp8":
        return 8
    if method.startswith("modelopt"):
        return algorithm_bits(str(quantization.get("quant_algo", "")))
    if method == "compressed-tensors":
        return _compressed_tensors_bits(quantization)
    return grouped_bits(quantization, 4 if method in {"awq", "gptq", "auto-round"} else 0)


def _compressed_tensors_bits(quantization: Mapping[str, object]) -> float:
    weights = _weight_schemes(quantization)
    # What no group names is taken for the widest, which errs on the safe side.
    return max((grouped_bits(w, 0) for w in weights if isinstance(w, dict)), default=0)


def _total_size(index: Path) -> int:
    """Return the bytes an index says its shards hold; 0 if it does not."""
    try:
        total = json.loads(read_bounded(index))["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # Engines load without it, so it is no reason to refuse; the files tell as well.
        return 0
    return int(total) if is_positive(total) else 0


def _file_sizes(folder: Path, pattern: str) -> int:
    files = [path for path in folder.glob(pattern) if path.is_file()]
    files = [path for path in files if path.name not in _NOT_WEIGHTS]
    files = [path for path in files if not path.name.startswith("adapter_")]
    # The same weights once more, in Mistral's own layout.
    others = [path for path in files if not path.name.startswith("consolidated")]
    return sum(path.stat().st_size for path in others or files)
