"""Keep the last figures vLLM reports about itself."""

from __future__ import annotations

from typing import Any

from lmi_backend.engines.protocol import EngineStats
from lmi_backend.engines.vllm import compat


class LastStats:
    """Holds the newest report; `logger` is the factory vLLM wants."""

    def __init__(self) -> None:
        self.value = EngineStats()

    def logger(self, vllm_config: Any, engine_index: int = 0) -> Any:
        """Return a stat logger that reports here."""
        return _Logger(self, vllm_config, engine_index)


class _Logger(compat.StatLoggerBase):  # type: ignore[misc]  # vLLM is not installed where types are checked
    def __init__(self, target: LastStats, vllm_config: Any, engine_index: int) -> None:
        self._target = target

    def record(self, scheduler_stats: Any = None, *_: Any, **__: Any) -> None:
        """Take vLLM's report of one step. Its further arguments have grown twice."""
        if scheduler_stats is not None:
            self._target.value = EngineStats(
                running=scheduler_stats.num_running_reqs,
                waiting=scheduler_stats.num_waiting_reqs,
                kv_cache_usage=scheduler_stats.kv_cache_usage,
            )

    def log_engine_initialized(self) -> None:
        """Say nothing; the worker says it is ready."""

    def log(self) -> None:
        """Say nothing; the figures go to Triton's metrics."""
