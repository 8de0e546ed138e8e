"""The engine implementation of Transformers."""

from __future__ import annotations

import asyncio

import transformers

from lmi_backend.engine_config import EngineConfig
from lmi_backend.engines.protocol import Rank
from lmi_backend.engines.transformers.batched import ContinuousBatch
from lmi_backend.engines.transformers.generate_engine import GenerateEngine
from lmi_backend.engines.transformers.loaded import Loaded
from lmi_backend.engines.transformers.loading import load, ranks
from lmi_backend.engines.transformers.lora import PeftAdapters
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest
from lmi_backend.ipc.engine import Capabilities


class TransformersEngine(GenerateEngine):
    """One model, or rank 0's part of it."""

    NAME = "transformers"
    VERSION = transformers.__version__

    def load(self) -> Loaded:
        loaded = load(self._config)
        self._adapters = PeftAdapters(loaded.model)
        if not loaded.is_seq2seq:
            batch = self._batch = ContinuousBatch(loaded, self._config.arguments)
            loaded = loaded._replace(max_model_len=batch.max_model_len)
        return loaded

    def refuse_solo(self, request: GenerateRequest) -> None:
        # Ranks agree through the batch only.
        if ranks() == 1:
            return
        problem = "need what Transformers' continuous batch cannot do, and nothing else can"
        accepted = (
            "temperature, top_k, top_p, max_new_tokens and stops where "
            "option.tensor_parallel_degree is more than 1"
        )
        raise RequestError(problem, field="sampling parameters", accepted=accepted)


class TransformersFollower(Rank):
    """A rank after the first: has its part of the model, and follows rank 0's batch."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._batch: ContinuousBatch | None = None

    async def start(self) -> Capabilities:
        loaded = await asyncio.to_thread(load, self._config)
        self._batch = ContinuousBatch(loaded, self._config.arguments)
        return Capabilities("transformers", transformers.__version__, loaded.max_model_len)

    async def check_health(self) -> None:
        if self._batch is not None:
            self._batch.check_health()

    async def close(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            await asyncio.to_thread(batch.close)
