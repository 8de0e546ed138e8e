"""The metrics that fleets route by, of endpoints that are real and workers that are not."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.frontend.connection import ModelRequests
from lmi_backend.frontend.models import Models
from lmi_backend.frontend.operators import metrics
from lmi_backend.frontend.operators.metrics import FAMILIES, Metrics
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.pool.rank_group import WorkerStats
from tests.support.doubles.endpoints import open_endpoint, short_folder
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.doubles.looking import NotedAnswer, looking
from tests.support.run.waiting import until

folder = pytest.fixture(short_folder)
NOWHERE = "http://127.0.0.1:9/metrics"
"""Nobody answers: Triton starts."""


class Workers(IdleWorkers):
    def __init__(self, *engines: EngineStats) -> None:
        self.engines = engines

    def stats(self) -> list[Any]:
        return [WorkerStats(each, assigned=0, deaths=0, is_ready=True) for each in self.engines]


def series(exchange: NotedAnswer) -> list[str]:
    assert exchange.headers["content-type"].startswith("text/plain")
    return [line for line in exchange.answer.split("\n") if line and line[0] != "#"]


async def lines(folder: Path, *models: tuple[EngineStats, ...]) -> list[str]:
    """Return the series that some models' workers make."""
    return [line for line in await shown(folder, *models) if not line.startswith("lmi_front_end_")]


async def test_what_this_process_counts_is_there_from_the_start(folder: Path) -> None:
    shown_lines = await shown(folder, (EngineStats(),), (EngineStats(),))
    process = f',process="{os.getpid()}"'
    assert shown_lines[-2 * len(FAMILIES) :] == [
        f'{name}{{model="model {number}"{"" if buffered else process}}} 0'
        for name, buffered in zip(FAMILIES, [False] * 4 + [True] * 4, strict=True)
        for number in range(2)
    ]


async def test_the_load_is_that_of_all_models(folder: Path) -> None:
    exchange = NotedAnswer()
    models = (EngineStats(running=2, waiting=1), EngineStats(running=3)), (EngineStats(running=4),)
    async with showing(folder, *models) as shows:
        await shows.load(exchange)  # type: ignore[arg-type]
    assert exchange.answer == {"server_load": 10}


async def shown(folder: Path, *models: tuple[EngineStats, ...]) -> list[str]:
    """Return the series that are answered where some models' workers run."""
    exchange = NotedAnswer()
    async with showing(folder, *models) as shows:
        await shows.show(exchange)  # type: ignore[arg-type]
    return series(exchange)


@contextlib.asynccontextmanager
async def showing(folder: Path, *models: tuple[EngineStats, ...]) -> AsyncIterator[Metrics]:
    """Yield what answers where some models' workers run."""
    endpoints = [
        open_endpoint(f"model {number}", Workers(*engines)) for number, engines in enumerate(models)
    ]
    async with looking(Models(folder)) as found:
        shows = Metrics(found, NOWHERE)
        await until(lambda: len(found.all()) == len(models))
        yield shows
        await shows.close()
    for each in endpoints:
        each.close()


async def test_one_series_is_of_all_models_and_workers(folder: Path) -> None:
    one = EngineStats(
        running=2, waiting=1, kv_cache_usage=0.5, kv_block_size=16, kv_blocks=100,
        max_adapters=2, running_adapters=("b", 'a"\\\n'), waiting_adapters=("c",),
    )  # fmt: skip
    other = EngineStats(
        running=3, kv_cache_usage=0.25, kv_block_size=16, kv_blocks=50,
        max_adapters=4, running_adapters=("b",),
    )  # fmt: skip
    shown_lines = await lines(folder, (one, other), (EngineStats(running=1, waiting=1),))
    *plain, lora = shown_lines
    assert plain == [
        "vllm:num_requests_running 6",
        "vllm:num_requests_waiting 2",
        "vllm:kv_cache_usage_perc 0.5",
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="150"} 1',
    ]
    labels = r'max_lora="4",running_lora_adapters="a\"\\\n,b",waiting_lora_adapters="c"'
    assert lora.startswith(f"vllm:lora_requests_info{{{labels}}} 1")


@pytest.mark.parametrize(
    "models",
    [
        pytest.param((), id="no model"),
        pytest.param(((EngineStats(running=1),),), id="an engine that does not say"),
        pytest.param(
            (
                (EngineStats(kv_block_size=16, kv_blocks=9),),
                (EngineStats(kv_block_size=32, kv_blocks=9),),
            ),
            id="blocks of two sizes",
        ),
    ],
)
async def test_what_is_not_known_has_no_series(
    models: tuple[tuple[EngineStats, ...], ...], folder: Path
) -> None:
    names = [line.rpartition(" ")[0] for line in await lines(folder, *models)]
    known = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    one = '{model_name="model 0"}' if len(models) == 1 else ""
    assert names == [f"vllm:{name}{one}" for name in known]


async def test_an_idle_model_is_asked_less_often_than_one_that_has_requests(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    asked = []
    state = ModelRequests.state
    monkeypatch.setattr(
        ModelRequests, "state", lambda *of, **more: asked.append(clock[0]) or state(*of, **more)
    )

    async def ages(stats: EngineStats) -> list[float]:
        """Return the ages of an answer at which the model is asked again."""
        asked.clear()
        async with showing(folder, (stats,)) as shows:
            for age in (0.0, 0.08, 0.1, 0.4, 0.6):
                clock[0] = 100.0 + age
                await shows.show(NotedAnswer())  # type: ignore[arg-type]
        return [round(at - 100.0, 2) for at in asked]

    assert await ages(EngineStats(running=1)) == [0.0, 0.1, 0.4, 0.6]
    assert await ages(EngineStats()) == [0.0, 0.6]
