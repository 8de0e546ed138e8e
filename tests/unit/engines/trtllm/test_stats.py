"""What TensorRT-LLM's rows say of its KV cache, without the library."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lmi_backend.engines.trtllm import stats
from lmi_backend.engines.trtllm.stats import StepCounts
from tests.support.run.waiting import HANG_SECONDS

ROW = {"maxNumBlocks": 100, "usedNumBlocks": 25, "tokensPerBlock": 32}


class Llm:
    """Hands out rows, once."""

    def __init__(self, *rows: Any) -> None:
        self.rows = list(rows)
        self.head_of: list[threading.Thread] = []

    def get_stats_async(self, timeout: float | None = 2) -> AsyncIterator[Any]:
        assert timeout
        self.head_of.append(threading.current_thread())
        return self._rows()

    async def _rows(self) -> AsyncIterator[Any]:
        while self.rows:
            yield self.rows.pop(0)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "_PAUSE", 0)


async def counted(llm: Llm) -> StepCounts:
    counts = StepCounts(llm)
    await counts.follow(lambda: bool(llm.rows))
    return counts


async def test_of_several_ranks_with_caches_the_fullest_counts() -> None:
    rows = [
        {"kvCacheStats": ROW | {"usedNumBlocks": used, "reusedBlocks": 1}, "attentionDpRank": rank}
        for rank, used in ((0, 10), (1, 75), (0, 20))
    ]
    fields = (await counted(Llm(*rows))).fields(is_busy=True)
    assert (fields["kv_cache_usage"], fields["kv_blocks"], fields["prompt_tokens_cached"]) == (
        0.75,
        100,
        64,
    )


@pytest.mark.parametrize("row", [{}, {"kvCacheStats": None}, {"kvCacheStats": {"maxNumBlocks": 0}}])
async def test_a_model_without_a_cache_says_nothing(row: dict[str, Any]) -> None:
    assert (await counted(Llm(row))).fields(is_busy=True) == {}


async def test_the_queue_is_made_in_the_loops_thread_and_waited_for_in_another() -> None:
    llm = Llm({"kvCacheStats": ROW})
    await counted(llm)
    first, *others = llm.head_of
    assert first is threading.current_thread()
    assert others
    assert first not in others


class Broken(Llm):
    async def _rows(self) -> AsyncIterator[Any]:
        yield {"kvCacheStats": ROW}
        raise RuntimeError("rpc failed")


class Wrong(Llm):
    async def _rows(self) -> AsyncIterator[Any]:
        yield {"kvCacheStats": {"maxNumBlocks": "many"}}


class Gone(Llm):
    get_stats_async: Any = None


@pytest.mark.parametrize("kind", [Broken, Wrong, Gone])
async def test_what_fails_is_said_once_and_asked_no_more(
    kind: type[Llm], caplog: pytest.LogCaptureFixture
) -> None:
    counts = StepCounts(kind())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            await asyncio.wait_for(counts.follow(lambda: True), HANG_SECONDS)
    assert len(caplog.records) == 1
    assert "metrics of the KV cache stay 0" in caplog.text
    assert counts.fields(is_busy=True) == {}
