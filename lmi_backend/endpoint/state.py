"""All that people and monitors look at of a model, as plain values."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.lora import LoraManager
    from lmi_backend.serving.service import Service
    from lmi_backend.serving.stats import Histogram, StatsSnapshot

LogLine = tuple[int, float, str, str]
"""Number, time in seconds since 1970, level, and text without secrets."""


@dataclass(frozen=True)
class StateView:
    """Looks at one model."""

    model: ModelInfo
    service: Service
    lora_manager: LoraManager
    plan: Mapping[str, Any]
    """As it may be shown."""
    redact: Callable[[str], str]
    """Takes the secrets out of a text."""
    log: Callable[[int], list[LogLine]]
    """Returns the lines of the log after a number."""
    started_at: float
    """Seconds since 1970."""

    def values(self, *, log_after: int = -1) -> dict[str, Any]:
        """Return the state now.

        Keys: `model`, `engine`, `version`, `max_model_len`, `served_names`, `root`, `now` and
        `started_at` (seconds since 1970), `health` (is_ready, is_given_up, trouble), `stats` (the
        fields of `StatsSnapshot`; a histogram is its cumulative `buckets` by upper edge, `sum` and
        `count`), `workers` (the fields of `WorkerStats`), `adapters` (name and folder), `plan`
        (the fields of `EnginePlan`), and `log` where its lines are wanted.
        """
        snapshot, model = self.service.snapshot(), self.model
        health = msgspec.structs.asdict(self.service.health())
        return {
            "model": model.name,
            "engine": model.engine,
            "version": model.version,
            "max_model_len": model.max_model_len,
            "served_names": list(model.served_names),
            "root": model.root,
            "now": time.time(),
            "started_at": self.started_at,
            "health": health | {"trouble": self.redact(health["trouble"])},
            "stats": _stats(snapshot),
            "workers": [self._worker(worker) for worker in snapshot.workers],
            "adapters": dict(self.lora_manager.folders),
            "plan": self.plan,
        } | ({"log": self.log(log_after)} if log_after >= 0 else {})

    def brief(self) -> dict[str, Any]:
        """Return `model`, `now`, `workers`, and of `stats` how many requests wait."""
        snapshot = self.service.snapshot()
        return {
            "model": self.model.name,
            "now": time.time(),
            "stats": {"waiting": snapshot.waiting},
            "workers": [self._worker(worker) for worker in snapshot.workers],
        }

    def _worker(self, worker: WorkerStats) -> dict[str, Any]:
        return {
            "is_ready": worker.is_ready,
            "is_wanted": worker.is_wanted,
            "trouble": "" if worker.is_ready else self.redact(worker.trouble),
            "assigned": worker.assigned,
            "deaths": worker.deaths,
            "stats": msgspec.structs.asdict(worker.stats),
        }


def _stats(now: StatsSnapshot) -> dict[str, Any]:
    return {
        "open": now.open,
        "waiting": now.waiting,
        "ended": now.ended,
        "responses": now.responses,
        "prompt_tokens": now.prompt_tokens,
        "generation_tokens": now.generation_tokens,
        "moved": now.moved,
        "held": now.held,
        "given_up": now.given_up,
        "first_seconds": _histogram(now.first_seconds),
        "token_seconds": _histogram(now.token_seconds),
        "request_seconds": _histogram(now.request_seconds),
    }


def _histogram(histogram: Histogram) -> dict[str, Any]:
    buckets = dict(histogram.buckets())
    return {"buckets": buckets, "sum": histogram.total, "count": histogram.count}
