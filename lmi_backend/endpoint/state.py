"""All that people and monitors look at of a model, as plain values."""

from __future__ import annotations

import itertools
import time
from collections import deque
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lmi_backend.ipc.engine import Histogram, fast_path_state
from lmi_backend.printable import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lmi_backend.engine_config import ModelInfo
    from lmi_backend.pool.rank_group import WorkerStats
    from lmi_backend.serving.lora import LoraManager
    from lmi_backend.serving.service import Service

LogLine = tuple[int, float, str, str]
"""Number, time in seconds since 1970, level, and text without secrets."""
_LINES: Final = 200
_LINE_LETTERS: Final = 4000
"""Characters of a line; a traceback is one."""


class RecentLog:
    """The last lines, for those who look at the model."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_LINES)
        self._numbers = itertools.count(1)

    def add(self, created: float, level: str, text: str) -> None:
        self._lines.append((next(self._numbers), created, level, cut(text, _LINE_LETTERS)))

    def after(self, number: int) -> list[LogLine]:
        return [line for line in self._lines.copy() if line[0] > number]

    def rewrite(self, change: Callable[[str], str]) -> None:
        """Change the texts of all lines, when more secrets are known."""
        lines = [(*line[:3], change(line[3])) for line in self._lines.copy()]
        self._lines = deque(lines, maxlen=_LINES)


RECENT: Final = RecentLog()
"""Of this process, which serves one model."""


@dataclass(frozen=True)
class StateView:
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

        Keys: `model`, `engine`, `version`, `max_model_len`, `served_names` and `root`.
        `now` and `started_at` are seconds since 1970.
        `health` has is_ready, is_given_up and problem.
        `stats` has the fields of `StatsSnapshot`.
        A histogram is its cumulative `buckets` by upper edge, its `sum` and its `count`.
        `workers` have the fields of `WorkerStats`.
        Each of the engine's `fast_paths` has its `name` and its `state` (`fast_path_state`).
        One that is off has `reason` and `cost` too.
        `adapters` are names and folders, `plan` has the fields of `EnginePlan`.
        `log` is there where its lines are wanted.
        """
        snapshot, model = self.service.snapshot(), self.model
        stats = {each.name: getattr(snapshot, each.name) for each in fields(snapshot)}
        # They are a list of their own.
        del stats["workers"]
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
            "health": health | self._problem(health["problem"]),
            "stats": _plain(stats),
            "workers": [self._whole_worker(worker) for worker in snapshot.workers],
            "adapters": {each.name: each.src for each in self.lora_manager.adapters.values()},
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

    def _whole_worker(self, worker: WorkerStats) -> dict[str, Any]:
        values = self._worker(worker)
        values["stats"]["fast_paths"] = [
            {"name": name, "state": fast_path_state(off), "reason": self.redact(off), "cost": cost}
            for name, off, cost in worker.stats.fast_paths
        ]
        return values

    def _worker(self, worker: WorkerStats) -> dict[str, Any]:
        """Return what clients request many times a second."""
        return {
            **vars(worker),
            **self._problem("" if worker.is_ready else worker.problem),
            "stats": _plain(msgspec.structs.asdict(worker.stats)) | {"fast_paths": []},
        }

    def _problem(self, text: str) -> dict[str, str]:
        """Return a problem by its name, and by the one that it has in 0.2.0."""
        line = self.redact(text)
        return {"problem": line, "trouble": line}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _histogram(value) if isinstance(value, Histogram) else value
        for name, value in values.items()
    }


def _histogram(histogram: Histogram) -> dict[str, Any]:
    buckets = dict(histogram.buckets())
    return {"buckets": buckets, "sum": histogram.total, "count": histogram.count}
