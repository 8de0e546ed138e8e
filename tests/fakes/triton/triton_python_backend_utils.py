"""What the stub gives a model of Triton's Python backend, as far as responses and metrics go.

Names and arguments are those of python_backend r24.10, src/pb_stub.cc.
"""

from dataclasses import dataclass, field
from typing import Any

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


@dataclass
class Tensor:
    name: str
    array: Any


class TritonError(Exception):
    INVALID_ARG = 1
    UNAVAILABLE = 2
    INTERNAL = 3


@dataclass
class InferenceResponse:
    output_tensors: list[Tensor] = field(default_factory=list)
    error: TritonError | None = None


class TritonModelException(Exception):
    """What a model may raise."""


class Metric:
    def __init__(self) -> None:
        self.number = 0.0

    def set(self, value: float) -> None:
        self.number = value

    def increment(self, value: float) -> None:
        self.number += value

    def value(self) -> float:
        return self.number


class MetricFamily:
    COUNTER, GAUGE = 1, 2

    def __init__(self, name: str, description: str, kind: int) -> None:
        del description, kind
        self.name = name
        self.series: list[tuple[dict[str, str], Metric]] = []

    def Metric(self, labels: dict[str, str]) -> Metric:
        """Return one series, which is there as long as its family."""
        metric = Metric()
        self.series.append((labels, metric))
        return metric
