"""How a model's weights are quantised, and how many bits a parameter of each module takes."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeGuard

from lmi_backend.files import read_bounded

if TYPE_CHECKING:
    from lmi_backend.sizing.config_fields import ConfigFields

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
_NVFP4_BITS: Final = 4 + 8 / 16
_PREFIXES: Final = (
    "model.layers.",
    "model.language_model.layers.",
    "language_model.model.layers.",
    "backbone.layers.",
    "layers.",
)
"""How files name the layers of the language model."""
_HEADS: Final = ("lm_head", "model.lm_head", "language_model.lm_head", "output_layer")
_LEFT_OUT: Final = ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers")
_CHOICES: Final = 64
_MOST: Final = 1 << 60
"""What no size is: infinity, too, is a number of JSON."""
_WIDEST: Final = 64
"""Bits of a number, at most."""
_ALL: Final = "Linear"
"""The class of layers that a scheme names where it is for all of them."""


@dataclass
class Names:
    """Patterns of module names, as quantisation tools write them."""

    parts: set[str] = field(default_factory=set)
    """Dotted names, or a part of one."""
    beginnings: tuple[str, ...] = ()
    others: list[str] = field(default_factory=list)
    """With wildcards."""

    @classmethod
    def of(cls, patterns: Iterable[object]) -> Names:
        """Read the patterns; what is no text or no pattern matches nothing."""
        names = cls()
        for pattern in (each for each in patterns if isinstance(each, str)):
            if pattern.startswith("re:"):
                names.others += _wildcards(pattern.removeprefix("re:"))
            elif "*" not in pattern:
                names.parts.add(pattern)
            elif pattern.index("*") == len(pattern) - 1 > 0:
                names.beginnings += (pattern[:-1],)
            else:
                names.others.append(pattern)
        return names

    def has(self, name: str) -> bool:
        if name.startswith(self.beginnings) or any(
            fnmatch.fnmatchcase(name, each) for each in self.others
        ):
            return True
        if not self.parts:
            return False
        words = name.split(".")
        ends = range(1, len(words) + 1)
        return any(".".join(words[at:end]) in self.parts for end in ends for at in range(end))


def _wildcards(expression: str) -> list[str]:
    """Return what an expression of an untrusted file matches, with wildcards: none is compiled.

    Tools write dots, `.*`, digits and one choice of names; all else matches nothing.
    """
    ends = expression.endswith("$")
    plain = expression.strip("^$").replace("\\d+", "*").replace(".*", "*").replace("\\.", ".")
    start, opened, rest = plain.partition("(")
    words, closed, after = rest.partition(")")
    choices = words.removeprefix("?:").split("|") if opened and closed else [""]
    tail = "" if ends else "*"
    return [f"{start}{word}{after}{tail}" for word in choices[:_CHOICES]]


@dataclass(frozen=True)
class ModuleBits:
    """The bits of each module of a quantised model."""

    plain: float
    left_out: Names
    schemes: Sequence[tuple[Names | None, float]]
    """Modules, None for all, and their bits; the first that has a module counts."""

    def average(self, modules: Sequence[str], layers: Iterable[int]) -> float:
        """Return the mean bits of a module over layers, by those of the names that it has."""
        bits = [self._bits(modules, layer) for layer in layers]
        return sum(bits) / len(bits) if bits else self.plain

    @property
    def head(self) -> float:
        """Bits of the output head, which no scheme for all layers has."""
        if any(map(self.left_out.has, _HEADS)):
            return self.plain
        named = (
            bits for members, bits in self.schemes if members and any(map(members.has, _HEADS))
        )
        return next(named, self.plain)

    def _bits(self, modules: Sequence[str], layer: int) -> float:
        names = [f"{prefix}{layer}.{module}" for prefix in _PREFIXES for module in modules]
        if any(map(self.left_out.has, names)):
            return self.plain
        for members, bits in self.schemes:
            if members is None or any(map(members.has, names)):
                return bits
        return self.plain


def module_bits(quantization: Mapping[str, object], bits: float, plain: float) -> ModuleBits:
    """Return the bits of each module.

    Args:
        quantization: of config.json, or of the file next to it.
        bits: of a quantised parameter, where no scheme says otherwise.
        plain: of one that is not quantised.
    """
    left_out = [each for name in _LEFT_OUT for each in _listed(quantization.get(name))]
    dynamic = quantization.get("dynamic")
    exceptions = dynamic if isinstance(dynamic, dict) else {}
    left_out += [f"re:{each[2:]}" for each in exceptions if str(each).startswith("-:")]
    schemes = list(_schemes(quantization, bits)) or [(None, bits)]
    return ModuleBits(plain, Names.of(left_out), schemes)


def _schemes(
    quantization: Mapping[str, object], bits: float
) -> Iterator[tuple[Names | None, float]]:
    layers = quantization.get("quantized_layers")
    if isinstance(layers, dict):
        by_bits: dict[float, list[str]] = {}
        for name, scheme in layers.items():
            algorithm = scheme.get("quant_algo") if isinstance(scheme, dict) else None
            by_bits.setdefault(algorithm_bits(str(algorithm)), []).append(name)
        yield from ((Names.of(_with_members(names)), each) for each, names in by_bits.items())
        if quantization.get("quant_method") == "fp8":
            yield None, 8
        return
    groups = quantization.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else []:
        if isinstance(group, dict):
            yield from _group(group, bits)


def _group(group: Mapping[str, object], bits: float) -> Iterator[tuple[Names | None, float]]:
    weights = group.get("weights")
    own = grouped_bits(weights, 0) if isinstance(weights, dict) else 0
    targets = _listed(group.get("targets"))
    named = [each for each in targets if isinstance(each, str) and ("." in each or ":" in each)]
    is_for_all = not named or _ALL in targets
    yield (None if is_for_all else Names.of(_with_members(named))), own or bits


def _with_members(names: Iterable[str]) -> list[str]:
    """Return names with those of what is fused of them, or is written as one for all experts."""
    return [*names, *{re.sub(r"\.experts(\.\d+)?\..*", ".experts", name) for name in names}]


def algorithm_bits(algorithm: str) -> float:
    """Return the bits of a parameter by what ModelOpt calls its algorithm."""
    word = algorithm.upper()
    if "MXFP4" in word:
        return MXFP4_BITS
    return _NVFP4_BITS if "FP4" in word or "W4A" in word else 8


def grouped_bits(scheme: Mapping[str, object], default_bits: int) -> float:
    """Return bits a parameter if a group of them shares a scale, and a zero point where it has."""
    bits = _first(scheme, ("bits", "num_bits", "w_bit", "nbits")) or default_bits
    # -1 means one scale for each channel.
    group = next((scheme[n] for n in ("group_size", "q_group_size") if n in scheme), None) or 128
    if not bits or bits >= 8 or not is_positive(group) or group < 1:
        return float(bits)
    if scheme.get("type") == "float":
        return bits + 8 / group
    return float(bits + (16 + (0 if scheme.get("symmetric") is True else bits)) / group)


def _first(scheme: Mapping[str, object], names: tuple[str, ...]) -> float:
    """Return the first of the fields that is a number of bits; 0 if none is."""
    values = (value for name in names if is_positive(value := scheme.get(name)))
    return next((value for value in values if value <= _WIDEST), 0)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def is_positive(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST


def quantization_config(config: ConfigFields) -> Mapping[str, object]:
    """Return how the weights are quantised, by config.json or by ModelOpt's file next to it."""
    for name in ("quantization_config", "compression_config"):
        if isinstance(scheme := config.shared(name), dict):
            return scheme
    try:
        whole = json.loads(read_bounded(config.file.with_name("hf_quant_config.json")))
        scheme = whole["quantization"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {"quant_method": "modelopt", **scheme} if isinstance(scheme, dict) else {}


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
    scheme = quantization_config(config)
    method = scheme.get("quant_method")
    if method is None and (scheme.get("load_in_4bit") or scheme.get("load_in_8bit")):
        return "bitsandbytes"
    if method is None and scheme.get("config_groups"):
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
        each.get("type") == "float" and each.get("num_bits") == 4
        for each in _of_groups(quantization, "weights")
    )


def _of_groups(quantization: Mapping[str, object], part: str) -> list[Mapping[str, object]]:
    """Return the scheme of weights or activations of each group of layers."""
    groups = quantization.get("config_groups")
    schemes = groups.values() if isinstance(groups, dict) else []
    parts = (scheme.get(part) for scheme in schemes if isinstance(scheme, dict))
    return [each for each in parts if isinstance(each, dict)]


def computes_in_8_bits(quantization: Mapping[str, object]) -> bool:
    """Tell whether a quantised model's activations are quantised to 8 bits too."""
    method = str(quantization.get("quant_method", "")).lower()
    if method in {"fp8", "fbgemm_fp8"} or quantization.get("quant_algo") == "FP8":
        return True
    inputs = _of_groups(quantization, "input_activations")
    return any(each.get("num_bits") == 8 for each in inputs)


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
        # What no group names is taken for the widest, which errs on the safe side.
        weights = _of_groups(quantization, "weights")
        return max((grouped_bits(each, 0) for each in weights), default=0)
    return grouped_bits(quantization, 4 if method in {"awq", "gptq", "auto-round"} else 0)
