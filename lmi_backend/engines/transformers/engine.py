"""The engine implementation of Transformers."""

from __future__ import annotations

import transformers

from lmi_backend.engines.transformers.batched import ContinuousBatch
from lmi_backend.engines.transformers.generate_engine import GenerateEngine
from lmi_backend.engines.transformers.loaded import Loaded
from lmi_backend.engines.transformers.loading import load, ranks
from lmi_backend.engines.transformers.lora import PeftAdapters
from lmi_backend.errors import RequestError
from lmi_backend.generation import GenerateRequest


class TransformersEngine(GenerateEngine):
    """One model, or rank 0's part of it."""

    NAME = "transformers"
    VERSION = transformers.__version__

    def load(self) -> Loaded:
        loaded = load(self._config)
        self._adapters = PeftAdapters(loaded.model, self._config.adapters)
        if not loaded.is_seq2seq:
            self._batch = ContinuousBatch(loaded, self._config.arguments)
        return loaded

    def refuse_solo(self, request: GenerateRequest) -> None:
        # Ranks agree through the batch only.
        if ranks() == 1:
            return
        problem = "ask for what Transformers' continuous batch cannot do, and nothing else can"
        accepted = (
            "temperature, top_k, top_p, max_new_tokens and stops where "
            "option.tensor_parallel_degree is more than 1"
        )
        raise RequestError(problem, field="sampling parameters", accepted=accepted)
