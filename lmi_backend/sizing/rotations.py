"""How many numbers a device keeps for the rotations of one position."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lmi_backend.sizing.config_fields import ConfigFields
    from lmi_backend.sizing.kv_layers import WideAttention

_VIDEO: Final = 4
"""vLLM keeps so many times the positions where a position has time, height and width."""
_WHOLE_LAYERS: Final = "full_attention"
_LARGEST: Final = 1024
"""Times that a file may plausibly stretch its positions."""


def rotated_numbers(config: ConfigFields, head_dim: int, wide: WideAttention | None) -> int:
    """Return the cosines and sines of one position, of all kinds of layers together.

    Layers with the same rotations share them; each kind of layer with its own has its own.
    """
    written = config.get("rope_parameters") or config.get("rope_scaling")
    parameters: Mapping[str, object] = written if isinstance(written, dict) else {}
    kinds = {name: each for name, each in parameters.items() if isinstance(each, dict)}
    if kinds:
        heads = {_WHOLE_LAYERS: wide.head_dim} if wide else {}
        found = {
            (heads.get(name, head_dim), str(sorted(each.items(), key=str))): _rotated(
                config, each, heads.get(name, head_dim)
            )
            for name, each in kinds.items()
        }
        return sum(found.values())
    own = _rotated(config, parameters, head_dim)
    # Layers with a window have their own, which are not stretched.
    return own + _rotated(config, {}, head_dim) if config.get("rope_local_base_freq") else own


def _rotated(config: ConfigFields, parameters: Mapping[str, object], head_dim: int) -> int:
    copies = _VIDEO if parameters.get("mrope_section") else 1
    kind = parameters.get("rope_type") or parameters.get("type")
    factor = parameters.get("factor")
    if kind == "linear" and _is_number(factor) and 1 < factor <= _LARGEST:
        # Stretched positions lie between the old ones: there are as many more of them.
        copies *= int(factor)
    if parameters.get("rope_type") == "proportional":
        # The part that is not rotated is kept as zeros.
        return copies * head_dim
    dim = parameters.get("rope_dim") or config.get("rotary_dim")
    if isinstance(dim, int) and not isinstance(dim, bool) and 0 < dim <= head_dim:
        return copies * dim
    shares = (parameters.get("partial_rotary_factor"), config.get("partial_rotary_factor"))
    share = next((each for each in shares if _is_share(each)), 1.0)
    return copies * int(head_dim * float(str(share)))


def _is_share(value: object) -> bool:
    return _is_number(value) and 0 < value <= 1


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
