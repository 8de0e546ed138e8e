"""What one run of requests showed, whoever asked."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol


@dataclass(frozen=True)
class Answer:
    """The times of one answer, in seconds on any clock."""

    asked: float
    responses: list[float]


@dataclass(frozen=True)
class Measured:
    """Times of the answers to one run's requests, in seconds."""

    seconds: float
    """From the first request to the last response."""
    requests: int
    first: list[float]
    """To the first response of each request."""
    gaps: list[float]
    """Between the responses of a request."""
    spans: list[float]
    """From the first to the last response of each request."""

    @classmethod
    def of(cls, answers: list[Answer]) -> Measured:
        began = min(answer.asked for answer in answers)
        ended = max(answer.responses[-1] for answer in answers)
        return cls(
            seconds=ended - began,
            requests=len(answers),
            first=[answer.responses[0] - answer.asked for answer in answers],
            gaps=[b - a for answer in answers for a, b in pairwise(answer.responses)],
            spans=[answer.responses[-1] - answer.responses[0] for answer in answers],
        )


class Asks(Protocol):
    def run(self, tokens: int, concurrency: int, requests: int) -> Measured:
        """Send requests for answers of so many tokens, so many at once."""
        ...
