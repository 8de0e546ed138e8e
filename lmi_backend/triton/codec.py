"""Tensors to Python values and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from lmi_backend.errors import LmiError, RequestError
from lmi_backend.repository.tensors import INPUTS, OUTPUTS

_STRINGS = frozenset(tensor.name for tensor in INPUTS if tensor.data_type == "TYPE_STRING")


def read_inputs(request: Any) -> dict[str, list[Any]]:
    """Return the values of each input that was sent, flat.

    Raises:
        RequestError: a string is not UTF-8.
    """
    inputs: dict[str, list[Any]] = {}
    for tensor in request.inputs():
        name = tensor.name()
        values = tensor.as_numpy().ravel().tolist()
        inputs[name] = [_text(name, value) for value in values] if name in _STRINGS else values
    return inputs


def requested_outputs(request: Any) -> frozenset[str]:
    """Return the outputs the client named; none if it named none, which Triton reads as all."""
    names = frozenset(request.requested_output_names())
    return names if len(names) < len(OUTPUTS) else frozenset()


def response(values: dict[str, str | int]) -> Any:
    """Return a response of one-element tensors."""
    return pb_utils.InferenceResponse(
        output_tensors=[_tensor(name, value) for name, value in values.items()]
    )


def error_response(error: LmiError) -> Any:
    """Return a response that carries only an error."""
    code = getattr(pb_utils.TritonError, error.code)
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error), code))


def _text(name: str, value: bytes | str) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 (byte {error.start})"
        raise RequestError(problem, field=name, value=value[:40]) from error


def _tensor(name: str, value: str | int) -> Any:
    if isinstance(value, int):
        return pb_utils.Tensor(name, np.array([value], dtype=np.uint32))
    array = np.empty(1, dtype=np.object_)
    # A generated text may hold half of a surrogate pair; "replace" keeps the response valid.
    array[0] = value.encode("utf-8", "replace")
    return pb_utils.Tensor(name, array)
