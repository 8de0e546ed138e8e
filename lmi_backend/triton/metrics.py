"""Publish a service's stats as Triton metrics.

An update costs 77 µs on the server thread that also hands out responses. So the stub gathers
values, and publishes only those that changed. The snapshots of an idle model are all the same, and
nothing is made of them. Triton's own
histograms accept one value a call, which is too slow for values of every token. So histograms are
counters here, with the names that Prometheus gives a histogram.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import triton_python_backend_utils as pb_utils

from lmi_backend.serving.metrics import (
    FAMILIES,
    GAUGE,
    WITH_STATE,
    as_vllm,
    gauges_and_counters,
    histograms,
    series_names,
    vllm_series_names,
)
from lmi_backend.threads import guarded_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from lmi_backend.serving.metrics import Labels, Series
    from lmi_backend.serving.stats import StatsSnapshot

_log = logging.getLogger(__name__)

_SECONDS: Final = 2.0
"""Between two rounds; scrapes are rarer."""


@dataclass
class _Published:
    metric: Any
    is_gauge: bool
    value: float = 0.0

    def publish(self, value: float) -> None:
        if value == self.value:
            return
        if self.is_gauge:
            self.metric.set(value)
        else:
            # An engine's sums start anew when it is restarted; what it counted before stays.
            self.metric.increment(value - self.value if value > self.value else value)
        self.value = value


class MetricsPublisher:
    """Publishes what `snapshot` returns, until stopped.

    Args:
        model: its name.
        version: Triton's, of the model.
        is_vllm_too: whether what vLLM has too is published under its names as well.
    """

    def __init__(
        self,
        model: str,
        version: str,
        snapshot: Callable[[], StatsSnapshot],
        *,
        is_vllm_too: bool = True,
    ) -> None:
        self._model, self._version, self._snapshot = model, version, snapshot
        self._is_vllm_too = is_vllm_too
        self.families: dict[str, tuple[Any, bool]] = {}
        self.published: dict[tuple[str, Labels], _Published] = {}
        self._last: StatsSnapshot | None = None
        """What was published last."""
        self._stopped = threading.Event()
        self.thread = guarded_thread("lmi-metrics", self._run)

    def start(self) -> None:
        """Create the metrics and start; says so and does nothing where the server has none."""
        try:
            for family, (kind, text) in FAMILIES.items():
                theirs = vllm_series_names(family) if self._is_vllm_too else []
                for name in (*series_names(family), *theirs):
                    self.families[name] = _family(name, text, is_gauge=kind == GAUGE)
        except pb_utils.TritonModelException as error:
            _log.info("no metrics: %s", error)
            return
        self.thread.start()

    def stop(self) -> None:
        """Publish what has changed since the last round, and stop the thread.

        The metrics stay until the interpreter exits. If they are freed here, 24.10 hangs in models
        that are loaded and unloaded under load. If they stay, a stub of 26.01 crashes as it exits
        (triton-inference-server/server#8662). python_backend#429 would repair it, and is in no
        release up to 26.07.
        """
        self._stopped.set()
        if self.thread.is_alive():
            self.thread.join(1.0)

    def _run(self) -> None:
        # What is so from the start is known when the model is ready.
        self._try_publishing()
        while not self._stopped.wait(_SECONDS):
            self._try_publishing()
        # What has ended since the last round counts too.
        self._try_publishing()

    def _try_publishing(self) -> None:
        try:
            self.publish_changes()
        except Exception:  # noqa: BLE001  the next round may do
            _log.exception("%s: its metrics cannot be published", self._model)

    def publish_changes(self) -> None:
        now = self._snapshot()
        if now != self._last:
            self.publish(self.series_of(now))
            self._last = now

    def series_of(self, now: StatsSnapshot) -> Series:
        series = gauges_and_counters(self._model, now) | histograms(self._model, now)
        return series | as_vllm(series, self._version) if self._is_vllm_too else series

    def publish(self, series: Series) -> None:
        for name in WITH_STATE:
            self._end_series(name, series)
        for (name, labels), value in series.items():
            published = self.published.get((name, labels))
            if published is None:
                if name not in self.families:
                    self.families[name] = _family(name, FAMILIES[name][1], is_gauge=True)
                family, is_gauge = self.families[name]
                metric = family.Metric(labels=dict(labels))
                published = self.published[name, labels] = _Published(metric, is_gauge)
            published.publish(value)

    def _end_series(self, name: str, series: Series) -> None:
        """Remove a family after one of its series has stopped: Triton removes no single series."""
        published = [key for key in self.published if key[0] == name]
        if all(key in series for key in published):
            return
        for key in published:
            del self.published[key]
        self.families.pop(name, None)


def _family(name: str, text: str, *, is_gauge: bool) -> tuple[Any, bool]:
    kinds = pb_utils.MetricFamily
    kind = kinds.GAUGE if is_gauge else kinds.COUNTER
    return kinds(name=name, description=text, kind=kind), is_gauge
