"""What TensorRT-LLM counts of its steps: the KV cache's blocks, how many are in use, which reused.

Source: `get_stats_async` of 1.0 to 1.3, and the fields that NVIDIA's own server publishes
(metrics/collector.py, log_iteration_stats). Rows are handed out once: they are read while there are
requests, so that none piles up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

_log = logging.getLogger(__name__)

_PAUSE: Final = 1.0
"""Seconds between two looks; rows that have come meanwhile are read at once."""
_TIMEOUT_SECONDS: Final = 2.0
"""Seconds that the library waits for a row: its own default. 1.0 and 1.1 give no more rows after
that, until the next request."""
_BRIEF: Final = 0.05


class StepCounts:
    """Keeps the last counts of each rank that has a KV cache of its own."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._last: dict[int, dict[str, int]] = {}
        """By the rank of attention's data parallelism."""
        self._has_queue = False
        self._has_failed = False

    def fields(self, *, is_busy: bool) -> dict[str, Any]:
        """Return what is known, as fields of `EngineStats`.

        Args:
            is_busy: whether there are requests: without any no block is in use, and no step tells.
        """
        if not self._last:
            return {}
        used = max(each["used"] / each["blocks"] for each in self._last.values())
        sizes = [(each, each["size"]) for each in self._last.values()]
        reused = sum(each["reused"] * size for each, size in sizes)
        return {
            "kv_cache_usage": used if is_busy else 0.0,
            "kv_blocks": max(each["blocks"] for each in self._last.values()),
            "kv_block_size": max(size for _, size in sizes),
            "prompt_tokens_cached": reused,
            "prompt_tokens_looked_up": reused + sum(each["missed"] * s for each, s in sizes),
        }

    async def follow(self, is_busy: Callable[[], bool]) -> None:
        """Read the rows while there are requests, and those of the last one's steps.

        An error stops this and nothing else: the counts are for people.
        """
        try:
            while is_busy() and not self._has_failed:
                await asyncio.sleep(_PAUSE)
                await self._read()
        except Exception as error:  # noqa: BLE001  no request may end of it
            self._has_failed, self._last = True, {}
            _log.warning(
                "TensorRT-LLM's get_stats_async fails, so the metrics of the KV cache stay 0 until "
                "the worker starts again: %s: %s", type(error).__name__, error,
            )  # fmt: skip

    async def _read(self) -> None:
        if not self._has_queue:
            # Since 1.2 the first call makes the queue of the rows, for the loop of its thread.
            self._llm.get_stats_async(_BRIEF)
            self._has_queue = True
        # In 1.2 the call itself waits for rows.
        rows = await asyncio.to_thread(self._llm.get_stats_async, _TIMEOUT_SECONDS)
        async for row in rows:
            self._take(row)

    def _take(self, row: Mapping[str, Any]) -> None:
        counts = row.get("kvCacheStats")
        # A model without a KV cache has none.
        if not counts or not counts.get("maxNumBlocks"):
            return
        self._last[row.get("attentionDpRank") or 0] = {
            "blocks": int(counts["maxNumBlocks"]),
            "used": int(counts.get("usedNumBlocks") or 0),
            "size": int(counts.get("tokensPerBlock") or 0),
            "reused": int(counts.get("reusedBlocks") or 0),
            "missed": int(counts.get("missedBlocks") or 0),
        }
