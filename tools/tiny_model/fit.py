"""The training loop of all three models: until the least certain token is certain enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .errors import TinyModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .progress import Progress

IGNORED = -100
"""The label that the loss of transformers passes over."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Hold how to train: the rate falls along a cosine until `steps`; `cap` steps end in an error.

    `goal` is the probability that every token of every answer must reach. It is far above what
    greedy decoding needs, because engines round differently, in bfloat16 most of all.
    """

    what: str
    rate: float
    steps: int
    cap: int
    goal: float = 0.98
    warm_up: int = 20
    check_every: int = 20

    def rate_at(self, step: int) -> float:
        """Give the learning rate of a step, counted from 0."""
        warm = min(1.0, (step + 1) / self.warm_up)
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, step / self.steps)))
        return self.rate * warm * (0.05 + 0.95 * fall)


def fit(
    plan: Plan,
    parameters: Iterable[torch.nn.Parameter],
    loss_of: Callable[[], torch.Tensor],
    confidence_of: Callable[[], float],
    progress: Progress,
) -> int:
    """Train `parameters` in place and return the number of steps it took.

    Raises:
        TinyModelError: `plan.cap` steps were not enough.
    """
    weights = list(parameters)
    optimizer = torch.optim.AdamW(weights, lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.01)
    confidence = 0.0
    for step in range(plan.cap):
        optimizer.param_groups[0]["lr"] = plan.rate_at(step)
        loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        if (step + 1) % plan.check_every == 0:
            confidence = confidence_of()
        progress.update(plan.what, step + 1, loss.item(), confidence)
        if confidence >= plan.goal:
            return step + 1
    raise TinyModelError(
        f"{plan.what}: after {plan.cap} steps the least certain token has probability"
        f" {confidence:.3f}, below {plan.goal}"
    )


def least_probability(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Give the probability of the label that is least probable; both are aligned already."""
    chosen = labels.clamp_min(0).unsqueeze(-1)
    probability = logits.float().softmax(-1).gather(-1, chosen).squeeze(-1)
    return float(probability.masked_fill(labels == IGNORED, 1.0).min())
