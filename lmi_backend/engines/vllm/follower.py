"""The vLLM ranks after the first: they compute what rank 0 schedules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lmi_backend.engines.follower import Follower
from lmi_backend.engines.protocol import Capabilities, EngineConfig
from lmi_backend.engines.vllm import compat
from lmi_backend.engines.vllm.arguments import engine_args
from lmi_backend.errors import ConfigurationError, EngineDeadError

if TYPE_CHECKING:
    from collections.abc import Callable


class VllmFollower(Follower):
    """One executor of vLLM without a scheduler."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._executor: Any = None

    async def start(self) -> Capabilities:
        """See `Rank`."""
        arguments = engine_args(self._config)
        create: Callable[[Any], Any] = compat.headless_executor
        try:
            self._executor = await asyncio.to_thread(create, arguments)
        except ValueError as error:
            message = f"vLLM refuses to start: {error}"
            raise ConfigurationError(message) from error
        return Capabilities("vllm", compat.vllm_version, 0)

    async def check_health(self) -> None:
        """See `Rank`."""
        if self._executor is not None and self._executor.is_failed:
            message = "a process of vLLM's executor died"
            raise EngineDeadError(message)

    async def close(self) -> None:
        """See `Rank`."""
        executor, self._executor = self._executor, None
        if executor is not None:
            await asyncio.to_thread(executor.shutdown)
