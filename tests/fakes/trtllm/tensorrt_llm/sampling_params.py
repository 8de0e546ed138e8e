from typing import Any

from .recorded import recorded


class GuidedDecodingParams:
    @recorded("tensorrt_llm.llmapi:GuidedDecodingParams.__init__")
    def __init__(self, **guides: Any) -> None:
        if sum(map(bool, guides.values())) > 1:
            raise ValueError("Only one guide can be used for a request")


class SamplingParams:
    @recorded("tensorrt_llm:SamplingParams.__init__")
    def __init__(self, *, top_p: Any, top_k: Any, temperature: Any, best_of: Any, **more: Any):
        if top_p is not None and not 0 <= top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={top_p}")
        if top_k is not None and top_k < 0:
            raise ValueError(f"require top_k >= 0, got top_k={top_k}")
        if temperature is not None and temperature < 0:
            raise ValueError(f"require temperature >= 0, got temperature={temperature}")
        is_greedy = temperature == 0 or top_k == 1 or top_p == 0
        is_greedy = is_greedy or all(each is None for each in (temperature, top_k, top_p))
        if best_of is not None and best_of > 1 and is_greedy:
            raise ValueError("Greedy decoding in the LLM API does not allow multiple returns")
        self.__dict__.update(more)
        self.top_p, self.top_k, self.temperature, self.best_of = top_p, top_k, temperature, best_of
