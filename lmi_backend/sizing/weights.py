"""How many bytes a model's weights take: on disk, else by its config.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeGuard

from lmi_backend.bounded_files import read_bounded
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
MXFP4_BITS: Final = 4 + 8 / 32
"""Of a number, with its part of the scale that 32 share."""
# What training leaves beside the weights; adapters are loaded on their own.
_NOT_WEIGHTS = frozenset({"training_args.bin", "optimizer.bin", "scheduler.bin"})


def weights_on_disk(folder: Path) -> tuple[int, str] | None:
    """Return the bytes of the folder's weights and where the number is from; None if it has none.

    safetensors come before PyTorch's own format, as every engine prefers them; the index comes
    before the files, which may be there twice (Mistral's "consolidated") or not yet.
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


def dtype_bytes(config: ConfigFields, dtype: str) -> int:
    """Return the bytes of one number of the config's dtype.

    Raises:
        ConfigurationError: no such dtype.
    """
    if dtype not in DTYPE_BYTES:
        accepted = ", ".join(DTYPE_BYTES)
        name = config.name_of("dtype", "torch_dtype")
        raise config.error(name, dtype, f"is not a dtype; accepted: {accepted}")
    return DTYPE_BYTES[dtype]


def computed_weights(config: ConfigFields, facts: ModelFacts) -> int:
    """Return the bytes of the weights by the shapes in config.json.

    Embeddings, head and vision encoder are never quantised; MXFP4 quantises the experts only.
    """
    count = count_parameters(config, facts)
    plain = dtype_bytes(config, facts.dtype) * 8
    bits = quantised_bits(quantization_config(config), facts.quantization) or plain
    body = plain if facts.quantization == "mxfp4" else bits
    whole = (count.embeddings + count.vision) * plain
    return round((whole + count.body * body + count.experts * bits) / 8)


def quantization_config(config: ConfigFields) -> Mapping[str, object]:
    """Return the config's part on quantisation; empty if the weights are not quantised."""
    for name in ("quantization_config", "compression_config"):
        found = config.shared(name)
        if isinstance(found, dict):
            return found
        if found is not None:
            raise config.error(name, found, "is not an object")
    return {}


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
        algorithm = str(quantization.get("quant_algo", "")).upper()
        return 4 + 8 / 16 if "FP4" in algorithm else 8
    if method == "compressed-tensors":
        return _compressed_tensors_bits(quantization)
    return _grouped_bits(quantization, 4 if method in {"awq", "gptq", "auto-round"} else 0)


def _compressed_tensors_bits(quantization: Mapping[str, object]) -> float:
    groups = quantization.get("config_groups")
    schemes = groups.values() if isinstance(groups, dict) else []
    weights = [scheme.get("weights") for scheme in schemes if isinstance(scheme, dict)]
    # Layers may differ; the widest errs on the safe side.
    return max((_grouped_bits(w, 0) for w in weights if isinstance(w, dict)), default=0)


def _grouped_bits(scheme: Mapping[str, object], default_bits: int) -> float:
    """Return bits a parameter if a group of them shares a 16-bit scale and a zero point."""
    bits = _first(scheme, ("bits", "num_bits", "w_bit", "nbits")) or default_bits
    # -1 means one scale for each channel.
    group = next((scheme[n] for n in ("group_size", "q_group_size") if n in scheme), None) or 128
    if not bits or bits >= 8 or not _is_positive(group):
        return float(bits)
    return float(bits + (16 + bits) / group)


def _first(scheme: Mapping[str, object], names: tuple[str, ...]) -> float:
    """Return the first of the fields that is a positive number; 0 if none is."""
    return next((value for name in names if _is_positive(value := scheme.get(name))), 0)


def _total_size(index: Path) -> int:
    """Return the bytes an index says its shards hold; 0 if it does not."""
    try:
        total = json.loads(read_bounded(index))["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # Engines load without it, so it is no reason to refuse; the files tell as well.
        return 0
    return int(total) if _is_positive(total) else 0


def _file_sizes(folder: Path, pattern: str) -> int:
    files = [path for path in folder.glob(pattern) if path.is_file()]
    files = [path for path in files if path.name not in _NOT_WEIGHTS]
    files = [path for path in files if not path.name.startswith("adapter_")]
    # The same weights once more, in Mistral's own layout.
    others = [path for path in files if not path.name.startswith("consolidated")]
    return sum(path.stat().st_size for path in others or files)


def _is_positive(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
