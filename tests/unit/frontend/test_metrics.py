"""The metrics that fleets route by, of endpoints that are real and workers that are not."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.endpoint.server import Endpoint
from lmi_backend.endpoint.state import StateView
from lmi_backend.engine_config import ModelInfo
from lmi_backend.frontend.metrics import Metrics
from lmi_backend.frontend.models import Models
from lmi_backend.ipc.engine import EngineStats
from lmi_backend.ipc.environment import RUN_DIR_VARIABLE
from lmi_backend.pool.rank_group import WorkerStats
from lmi_backend.schema.context import Context
from lmi_backend.serving.limits import Limits
from lmi_backend.serving.lora import LoraManager
from lmi_backend.serving.renewal import Renewal
from lmi_backend.serving.service import Service
from tests.support.endpoint_picker import Seen
from tests.support.idle_workers import IdleWorkers

NOWHERE = "http://127.0.0.1:9/metrics"
"""Nobody answers: Triton starts."""


class Workers(IdleWorkers):
    def __init__(self, *said: EngineStats) -> None:
        self.said = said

    def stats(self) -> list[Any]:
        return [WorkerStats(each, assigned=0, deaths=0, is_ready=True) for each in self.said]


class Exchange:
    """Keeps the answer."""

    async def respond(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        assert status == 200
        self.text = data.decode()
        self.lines = [line for line in data.decode().split("\n") if line and line[0] != "#"]


async def lines(folder: Path, *models: tuple[EngineStats, ...]) -> list[str]:
    """Return the series that some models' workers make."""
    return (await shown(folder, *models)).lines


async def shown(folder: Path, *models: tuple[EngineStats, ...]) -> Exchange:
    """Return what is answered where some models' workers run."""
    endpoints = [_endpoint(f"model {number}", *said) for number, said in enumerate(models)]
    found = Models(folder)
    looking = asyncio.create_task(found.run())
    metrics, exchange = Metrics(found, NOWHERE), Exchange()
    try:
        while len(found.all()) < len(models):  # noqa: ASYNC110  nobody says when they come
            await asyncio.sleep(0.02)
        await metrics.show(exchange)  # type: ignore[arg-type]
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await metrics.close()
        for each in endpoints:
            each.close()
    return exchange


def _endpoint(name: str, *said: EngineStats) -> Endpoint:
    service = Service(Workers(*said), Limits(running=8, waiting=8, seconds=60))
    lora = LoraManager({}, (), is_enabled=True)
    model = ModelInfo(name=name, engine="vllm", version="1", max_model_len=100)
    view = StateView(
        model=model,
        service=service,
        lora_manager=lora,
        plan={},
        redact=str,
        log=lambda _: [],
        started_at=1.0,
    )
    renewal = Renewal(service, service._workers, 1)  # type: ignore[arg-type]
    one = Endpoint(model, service, lora, Context(), view, renewal)
    one.open()
    return one


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # The address of a socket has room for 107 bytes; tmp_path may need most of them.
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setenv(RUN_DIR_VARIABLE, name)
        yield Path(name)


async def test_one_series_is_of_all_models_and_workers(folder: Path) -> None:
    one = EngineStats(
        running=2, waiting=1, kv_cache_usage=0.5, kv_block_size=16, kv_blocks=100,
        max_adapters=2, running_adapters=("b", 'a"\\\n'), waiting_adapters=("c",),
    )  # fmt: skip
    other = EngineStats(
        running=3, kv_cache_usage=0.25, kv_block_size=16, kv_blocks=50,
        max_adapters=4, running_adapters=("b",),
    )  # fmt: skip
    said = await lines(folder, (one, other), (EngineStats(running=1, waiting=1),))
    *plain, lora = said
    assert plain == [
        "vllm:num_requests_running 6",
        "vllm:num_requests_waiting 2",
        "vllm:kv_cache_usage_perc 0.5",
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="150"} 1',
    ]
    labels = r'max_lora="4",running_lora_adapters="a\"\\\n,b",waiting_lora_adapters="c"'
    assert lora.startswith(f"vllm:lora_requests_info{{{labels}}} 1")


async def test_an_endpoint_picker_reads_them(folder: Path) -> None:
    one = EngineStats(
        running=2, waiting=1, kv_cache_usage=0.5, kv_block_size=16, kv_blocks=100,
        max_adapters=2, running_adapters=("b", "a"), waiting_adapters=("c",),
    )  # fmt: skip
    other = EngineStats(running=3, waiting=4, kv_cache_usage=0.75, kv_block_size=16, kv_blocks=50)
    assert Seen.of((await shown(folder, (one, other))).text) == Seen(
        waiting=5, running=5, kv_usage=0.75, block_size=16, num_blocks=150, max_adapters=2,
        running_adapters=frozenset("ab"), waiting_adapters=frozenset("c"),
    )  # fmt: skip


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
