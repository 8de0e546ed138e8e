"""What is published to a server, here a double that keeps what it is given."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lmi_backend.serving.stats import RequestStats
from tests.support.waiting import wait_for

FAKES = Path(__file__).resolve().parents[2] / "fakes" / "triton"


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import the module where Triton's own is the double."""
    monkeypatch.syspath_prepend(str(FAKES))
    yield importlib.import_module("lmi_backend.triton.metrics")
    for name in ("triton_python_backend_utils", "lmi_backend.triton.metrics"):
        del sys.modules[name]


def _publisher(metrics: ModuleType) -> Any:
    stats = RequestStats("echo")
    return metrics.MetricsPublisher("echo", "1", lambda: stats.snapshot(0, []))


def test_a_server_that_has_died_is_told_nothing_more(metrics: ModuleType) -> None:
    """It would never take it, and the interpreter would be held for ever."""
    publisher = _publisher(metrics)
    publisher.start()
    wait_for(lambda: publisher._published)
    publisher.give_up()
    publisher._thread.join(10)
    assert not publisher._thread.is_alive()
    before = {key: each.value for key, each in publisher._published.items()}
    publisher._publish(dict.fromkeys(before, 12345.0))
    assert {key: each.value for key, each in publisher._published.items()} == before
