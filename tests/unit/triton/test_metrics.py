"""What is published to a server, here a double that keeps what it is given."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from lmi_backend.errors import RequestError
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.pool.rank_group import WorkerStats
from lmi_backend.serving.metrics import FAST_PATH
from lmi_backend.serving.stats import RequestStats, StatsSnapshot
from tests.support.doubles.triton_double import beside_the_double
from tests.support.run.waiting import HANG_SECONDS


@pytest.fixture
def metrics() -> Iterator[ModuleType]:
    with beside_the_double("metrics") as (module,):
        yield module


@pytest.fixture
def stats() -> RequestStats:
    return RequestStats("echo")


@pytest.fixture
def publisher(metrics: ModuleType, stats: RequestStats, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return one that has only a first round and a last."""
    monkeypatch.setattr(metrics, "_SECONDS", 600.0)
    return metrics.MetricsPublisher("echo", "1", lambda: stats.snapshot(0, []))


def test_what_came_after_the_last_round_is_published_at_the_end(
    publisher: Any, stats: RequestStats
) -> None:
    publisher.start()
    stats.refused(RequestError("is wrong", field="x"))
    publisher.stop()
    publisher.thread.join(HANG_SECONDS)
    values = [
        each.value
        for (name, _), each in publisher.published.items()
        if name == "lmi_requests_total"
    ]
    assert sum(values) == 1


def test_a_last_round_that_fails_ends_the_thread(
    publisher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "publish", lambda series: 1 / 0)
    publisher.start()
    publisher.stop()
    publisher.thread.join(HANG_SECONDS)
    assert not publisher.thread.is_alive()


def test_nothing_is_made_of_stats_that_have_not_changed(
    publisher: Any, stats: RequestStats, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[StatsSnapshot] = []
    made_of = publisher.series_of
    monkeypatch.setattr(publisher, "series_of", lambda now: made.append(now) or made_of(now))
    monkeypatch.setattr(publisher, "publish", lambda series: None)
    for _ in range(2):
        publisher.publish_changes()
    assert len(made) == 1
    stats.refused(RequestError("is wrong", field="x"))
    for _ in range(2):
        publisher.publish_changes()
    assert len(made) == 2


def test_a_series_ends_with_its_state(metrics: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, paths = RequestStats("m"), [("waits", "", ""), ("media", "", "")]

    def snapshot() -> StatsSnapshot:
        engine = EngineStats(fast_paths=tuple(paths))
        return stats.snapshot(0, [WorkerStats(engine, 0, 0, is_ready=True)])

    publisher = metrics.MetricsPublisher("m", "1", snapshot)
    monkeypatch.setattr(publisher.thread, "start", lambda: None)
    publisher.start()

    def shown() -> dict[tuple[str, str], float]:
        publisher.publish_changes()
        series = publisher.families[FAST_PATH][0].series
        return {(each["name"], each["state"]): metric.number for each, metric in series}

    assert shown() == {("waits", "private"): 1, ("media", "private"): 1}
    ready = publisher.families["lmi_worker_ready"]
    paths[1] = ("media", "it is gone", "no URLs")
    assert shown() == {("waits", "private"): 1, ("media", "public"): 0}
    # A worker that has died has none.
    paths.clear()
    publisher.publish_changes()
    assert FAST_PATH not in publisher.families
    paths.append(("waits", "", ""))
    assert shown() == {("waits", "private"): 1}
    assert publisher.families["lmi_worker_ready"] is ready
