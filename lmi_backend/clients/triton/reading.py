"""Requests of Triton's `generate` and `generate_stream`, sent to the model without Triton.

A body means what it means to the HTTP port of Triton 24.10. An input of the model becomes a tensor
of its type, and anything else a request parameter. The members of `parameters` stand for
themselves. Triton itself answers unusual bodies, so that errors have its text.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lmi_backend.repository.variants import MAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.clients.triton.body import Body
    from lmi_backend.repository.tensors import Tensor

_NAMED: Final = "parameters"
_INT_32, _INT_64 = 1 << 31, 1 << 63


class Asked(NamedTuple):
    """A body as the model gets it from Triton."""

    inputs: dict[str, list[Any]]
    """Values of each tensor, flat."""
    parameters: dict[str, object]
    request_id: str


def read_generate(body: Body) -> Asked | None:
    """Return what Triton makes of a body; None where that is an error, or unusual."""
    try:
        return _read(body)
    except (ValueError, OverflowError):
        return None


def _read(body: Body) -> Asked:
    _demand(isinstance(body.get("id", ""), str))
    asked = Asked({}, {}, body.get("id", ""))
    nested = body.get(_NAMED, {})
    _demand(isinstance(nested, dict))
    for name, value in (*((n, v) for n, v in body.items() if n != _NAMED), *nested.items()):
        if (tensor := _TENSORS.get(name)) is None:
            asked.parameters[name] = _parameter(name, value)
        else:
            _demand(name not in asked.inputs)
            asked.inputs[name] = _values(tensor, value)
    return asked


def _demand(is_so: object) -> None:
    if not is_so:
        raise ValueError


def _parameter(name: str, value: Any) -> object:
    # Triton ends a string at a NUL, has names of its own, and sees to a timeout with the model.
    _demand("\0" not in name and not name.startswith("triton_") and name != "timeout")
    match value:
        case str():
            _demand("\0" not in value)
        case int():
            _demand(-_INT_64 <= value < _INT_64)
        case float():
            _demand(math.isfinite(value))
        case _:
            raise ValueError
    return value


def _values(tensor: Tensor, value: Any) -> list[Any]:
    items = value if isinstance(value, list) else [value]
    _demand(items and (len(items) == 1 or tensor.dims == -1))
    return [_READERS[tensor.data_type](item) for item in items]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _string(value: Any) -> str:
    _demand(isinstance(value, str))
    return str(value)


def _bool(value: Any) -> bool:
    _demand(isinstance(value, bool))
    return bool(value)


def _integer(lowest: int, beyond: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        _demand(type(value) is int and lowest <= value < beyond)
        return int(value)

    return read


def _float(value: Any) -> float:
    _demand(_is_number(value))
    read: float = struct.unpack("f", struct.pack("f", value))[0]
    return read


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "TYPE_STRING": _string,
    "TYPE_BOOL": _bool,
    "TYPE_INT32": _integer(-_INT_32, _INT_32),
    "TYPE_UINT64": _integer(0, 2 * _INT_64),
    "TYPE_FP32": _float,
}
_TENSORS: Final = {tensor.name: tensor for tensor in MAIN.inputs}
