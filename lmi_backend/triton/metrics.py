"""Publish the service's figures as Triton metrics, at most ten times a second.

An update costs 77 µs on the server thread that also hands out responses, so figures are gathered
in the stub and only what changed is published.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import triton_python_backend_utils as pb_utils

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.serving.snapshot import Snapshot

_log = logging.getLogger(__name__)

_SECONDS = 0.1

FAMILIES = {
    "lmi_requests_open": ("GAUGE", "Requests taken and not answered to the end"),
    "lmi_requests_total": ("COUNTER", "Requests ended, by outcome"),
    "lmi_responses_total": ("COUNTER", "Responses sent"),
    "lmi_prompt_tokens_total": ("COUNTER", "Prompt tokens of finished requests"),
    "lmi_generation_tokens_total": ("COUNTER", "Tokens generated and sent"),
    "lmi_engine_requests_running": ("GAUGE", "Requests the engine generates for"),
    "lmi_engine_requests_waiting": ("GAUGE", "Requests the engine holds back"),
    "lmi_engine_kv_cache_usage_ratio": ("GAUGE", "Share of KV-cache blocks in use, 0 to 1"),
    "lmi_worker_requests_total": ("COUNTER", "Answers a worker was asked for"),
    "lmi_worker_deaths_total": ("COUNTER", "Times a worker died"),
}
"""Name to kind and help of every metric."""

Labels = tuple[tuple[str, str], ...]


@dataclass
class _Series:
    metric: Any
    kind: str
    value: float = 0.0

    def publish(self, value: float) -> None:
        if value == self.value:
            return
        if self.kind == "COUNTER":
            self.metric.increment(value - self.value)
        else:
            self.metric.set(value)
        self.value = value


class MetricsPublisher:
    """Publishes what `snapshot` returns, until stopped."""

    def __init__(self, model: str, snapshot: Callable[[], Snapshot]) -> None:
        self._model, self._snapshot = model, snapshot
        self._families: dict[str, Any] = {}
        self._series: dict[tuple[str, Labels], _Series] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lmi-metrics", daemon=True)

    def start(self) -> None:
        """Create the metrics and start; says so and does nothing where the server has none."""
        try:
            for name, (kind, text) in FAMILIES.items():
                self._families[name] = pb_utils.MetricFamily(
                    name=name, description=text, kind=getattr(pb_utils.MetricFamily, kind)
                )
        except pb_utils.TritonModelException as error:
            _log.info("no metrics: %s", error)
            return
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stopped.wait(_SECONDS):
            for (name, labels), value in self._values(self._snapshot()).items():
                self._find(name, labels).publish(value)

    def _values(self, now: Snapshot) -> dict[tuple[str, Labels], float]:
        model: Labels = (("model", self._model),)
        values: dict[tuple[str, Labels], float] = {
            ("lmi_requests_open", model): now.open,
            ("lmi_responses_total", model): now.responses,
            ("lmi_prompt_tokens_total", model): now.prompt_tokens,
            ("lmi_generation_tokens_total", model): now.generation_tokens,
        }
        for outcome, count in now.ended.items():
            values["lmi_requests_total", (*model, ("outcome", outcome))] = count
        workers = zip(now.workers, now.taken, now.restarts, strict=True)
        for index, (stats, taken, deaths) in enumerate(workers):
            worker = (*model, ("worker", str(index)))
            values["lmi_engine_requests_running", worker] = stats.running
            values["lmi_engine_requests_waiting", worker] = stats.waiting
            values["lmi_engine_kv_cache_usage_ratio", worker] = stats.kv_cache_usage
            values["lmi_worker_requests_total", worker] = taken
            values["lmi_worker_deaths_total", worker] = deaths
        return values

    def _find(self, name: str, labels: Labels) -> _Series:
        series = self._series.get((name, labels))
        if series is None:
            metric = self._families[name].Metric(labels=dict(labels))
            series = self._series[name, labels] = _Series(metric, FAMILIES[name][0])
        return series
