"""The ranks after the first: each has its part of the model, and follows rank 0's batch."""

from __future__ import annotations

import asyncio

import transformers

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.follower import Follower
from lmi_backend.engines.transformers.batched import ContinuousBatch
from lmi_backend.engines.transformers.loading import load
from lmi_backend.ipc.engine import Capabilities


class TransformersFollower(Follower):
    """One part of the model."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._batch: ContinuousBatch | None = None

    async def start(self) -> Capabilities:
        """See `Rank`."""
        loaded = await asyncio.to_thread(load, self._config)
        self._batch = ContinuousBatch(loaded, self._config.arguments)
        return Capabilities("transformers", transformers.__version__, loaded.max_model_len)

    async def check_health(self) -> None:
        """See `Rank`."""
        if self._batch is not None:
            self._batch.check_health()

    async def close(self) -> None:
        """See `Rank`."""
        batch, self._batch = self._batch, None
        if batch is not None:
            await asyncio.to_thread(batch.close)
