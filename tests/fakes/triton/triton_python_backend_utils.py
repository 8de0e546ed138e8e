"""What the stub gives a model of Triton's Python backend, as far as responses go.

Names and arguments are those of python_backend r24.10, src/pb_stub.cc.
"""

from dataclasses import dataclass, field
from typing import Any

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


@dataclass
class Tensor:
    """An output tensor."""

    name: str
    array: Any


class TritonError(Exception):
    """An error with a code."""

    INVALID_ARG = 1
    UNAVAILABLE = 2
    INTERNAL = 3


@dataclass
class InferenceResponse:
    """A response."""

    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None
