"""Keep vLLM's stats: the last load, sums since the start, and the engine's capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from lmi_backend.engines.vllm import compat
from lmi_backend.ipc.engine import EngineStats

_SUMS: Final = (
    "running", "waiting", "steps", "prompt_tokens_looked_up", "prompt_tokens_cached",
    "tokens_drafted", "tokens_accepted",
)  # fmt: skip


class LastStats:
    """Holds what was reported; `logger` is the factory vLLM wants.

    With data parallelism each copy of the model reports by itself: requests are added up, of shares
    of KV-cache blocks the largest counts.
    """

    def __init__(self) -> None:
        self._copies: dict[int, EngineStats] = {}
        """Of each copy, by vLLM's number."""

    @property
    def value(self) -> EngineStats:
        """Of all copies together."""
        copies = list(self._copies.values())
        if len(copies) < 2:
            return copies[0] if copies else EngineStats()
        sums: dict[str, Any] = {
            name: sum(getattr(each, name) or 0 for each in copies) for name in _SUMS
        }
        return EngineStats(kv_cache_usage=max(each.kv_cache_usage for each in copies), **sums)

    def copies(self, requests: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        """Return the steps and the requests of each copy.

        Args:
            requests: that each copy has, by its number; one that has reported nothing is left out.
        """
        return tuple(
            (self._copies[number].steps or 0, count)
            for number, count in requests.items()
            if number in self._copies
        )

    def logger(self, vllm_config: Any, engine_index: int = 0) -> Any:
        """Return a stat logger that reports here."""
        return _Logger(self._copies, engine_index)


def capacity(vllm_config: Any) -> dict[str, int]:
    """Return the fields of `EngineStats` that do not change, of an engine that has started."""
    cache, lora = vllm_config.cache_config, vllm_config.lora_config
    return {
        "kv_block_size": cache.block_size or 0,
        "kv_blocks": cache.num_gpu_blocks or 0,
        "max_adapters": lora.max_loras if lora is not None else 0,
    }


def adapters_in_use(states: Iterable[Any], *, holds_back: bool) -> dict[str, tuple[str, ...]]:
    """Return the fields of `EngineStats` about adapters.

    vLLM counts this by itself only together with what `compat.count_less` turns off.

    Args:
        states: what vLLM keeps of each request that runs or waits.
        holds_back: whether any waits; which of those without a token it is, vLLM does not say.
    """
    running: set[str] = set()
    waiting: set[str] = set()
    for state in states:
        if state.lora_name is not None:
            names = waiting if holds_back and state.is_prefilling else running
            names.add(state.lora_name)
    return {
        "running_adapters": tuple(sorted(running)),
        "waiting_adapters": tuple(sorted(waiting)),
    }


class _Logger(compat.StatLoggerBase):  # type: ignore[misc]  # vLLM is not installed where types are checked
    def __init__(self, copies: dict[int, EngineStats], engine_index: int) -> None:
        self._copies, self._index = copies, engine_index

    def record(self, scheduler_stats: Any = None, *_: Any, **__: Any) -> None:
        """Take vLLM's report of one step. Its further arguments have grown twice."""
        if scheduler_stats is None:
            return
        # No steps before vLLM reports one, which option.disable_log_stats keeps it from.
        before = self._copies.get(self._index, EngineStats())
        sums: dict[str, int] = {"steps": (before.steps or 0) + 1}
        if (cache := scheduler_stats.prefix_cache_stats) is not None and cache.queries:
            sums["prompt_tokens_looked_up"] = before.prompt_tokens_looked_up + cache.queries
            sums["prompt_tokens_cached"] = before.prompt_tokens_cached + cache.hits
        if (drafts := scheduler_stats.spec_decoding_stats) is not None:
            sums["tokens_drafted"] = before.tokens_drafted + drafts.num_draft_tokens
            sums["tokens_accepted"] = before.tokens_accepted + drafts.num_accepted_tokens
        self._copies[self._index] = msgspec.structs.replace(
            before,
            running=scheduler_stats.num_running_reqs,
            waiting=scheduler_stats.num_waiting_reqs,
            kv_cache_usage=scheduler_stats.kv_cache_usage,
            **sums,
        )

    def log_engine_initialized(self) -> None:
        """Log nothing; the worker logs that it is ready."""

    def log(self) -> None:
        """Log nothing; the stats go to Triton's metrics."""
