"""Ranks on the real server, and what their deaths do.

Of vLLM's they are the same: tests/contract/test_lmi_dist.py has those behind a worker process.
"""

import threading
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.support.serving import Served, serve, write_properties
from tests.support.waiting import HANG_SECONDS, wait_for

RANKS: dict[str, Any] = {"engine": "MPI", "option.tensor_parallel_degree": 2}


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("echo")
    properties = RANKS | {"option.rolling_batch": "echo", "option.token_seconds": 0.02}
    with serve([write_properties(folder / "echo", properties)], folder) as server:
        yield server


def test_a_killed_rank_costs_its_streams_a_pause(echo: Served) -> None:
    events: list[Any] = []
    body = {"inputs": "a b c", "parameters": {"max_new_tokens": 300}, "stream": True}

    def collect() -> None:
        with echo.events("echo", body) as stream:
            events.extend(stream)

    thread = threading.Thread(target=collect)
    (launcher,) = echo.workers("echo")
    members = launcher.children(recursive=True)
    (second,) = (p for p in launcher.children() if p.environ()["OMPI_COMM_WORLD_RANK"] == "1")
    thread.start()
    wait_for(lambda: echo.metric("lmi_engine_requests_running", "echo") == 1)
    second.kill()
    thread.join(HANG_SECONDS)
    assert events[-1]["generated_text"] == "a b c" * 100
    wait_for(lambda: echo.metric("lmi_migrations_total", "echo") == 1)
    assert not psutil.wait_procs(members, timeout=HANG_SECONDS)[1]
    wait_for(lambda: echo.generate("echo", body | {"stream": False})[0] == 200)
    wait_for(lambda: echo.metric("lmi_worker_deaths_total", "echo") == 1)


def test_no_rank_outlives_a_killed_stub(echo: Served) -> None:
    """The last test of this server."""
    (launcher,) = echo.workers("echo")
    members = [launcher, *launcher.children(recursive=True)]
    assert len(members) == 3
    launcher.parent().kill()
    assert not psutil.wait_procs(members, timeout=HANG_SECONDS)[1]
