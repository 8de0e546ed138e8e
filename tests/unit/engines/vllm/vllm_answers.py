"""Answers as a core gives them step by step, and what their chunks say together."""

from itertools import combinations
from typing import Any

from lmi_backend.engines.vllm.requests import OutputReader
from lmi_backend.generation import GenerateRequest, Sampling
from lmi_backend.tokenization import unpack
from tests.unit.engines.vllm.vllm_engine import AsyncLLM, Sink, answered
from tests.unit.engines.vllm.vllm_parts import FinishReason, Output, Tokenizer, lists

STEPS = 5
SUBSETS = [each for count in range(STEPS + 1) for each in combinations(range(STEPS), count)]
GRAMMAR: dict[str, Any] = {"structured_outputs": {"json": {}}}


def steps(*ids: list[int], reason: str = "length", logprobs: bool = False) -> list[Output]:
    """Return the outputs of the steps of an answer that ends with the last one."""
    made = [Output("a", each, lists(each, 1, 65) if logprobs else None) for each in ids]
    made[-1].finish_reason = FinishReason[reason.upper()]
    return made


ANSWERS: dict[str, tuple[list[Output], dict[str, Any]]] = {
    "words": (steps([65], [1], [2], [3], [66, 67, 7], [68]), {}),
    "a stop string that is held back": (
        steps([65], [66], [4], [83, 84], [4, 5, 65], [66]), {"stop": ["STOP"]}
    ),
    "no stop string after all": (steps([65], [4], [66], [4], [66], [4]), {"stop": ["STOP"]}),
    "a stop string that is shown": (
        steps([65], [66], [67], [68], [4, 5, 65, 66], [66]),
        {"stop": ["STOP"], "include_stop_str_in_output": True},
    ),
    "a stop token": (steps([65], [66], [67], [1], [68, 6], reason="stop"), {}),
    "log probabilities": (
        steps([65], [2], [3], [66, 2], [3, 1], [65], logprobs=True), {"logprobs": 0}
    ),
    "candidates": (
        steps([65], [66], [2, 3], [66, 67], [1], [65], logprobs=True), {"logprobs": 2}
    ),
    "log probabilities and a stop string": (
        steps([65], [66], [67], [4], [5, 1, 2], [65], logprobs=True),
        {"logprobs": 1, "stop": ["STOP"]},
    ),
    "a grammar that nothing fits after four": (
        steps([65], [66], [67], [68], [69], reason="error"), {"structured_outputs": object()}
    ),
    "a failure": (steps([65], [66, 67], [68], [69], [70], reason="error"), {}),
    "an abort": (steps([65], [66], [67], [68], [], reason="abort"), {}),
}  # fmt: skip


def delta_reader(params: dict[str, Any]) -> OutputReader:
    sampling = Sampling(extra=GRAMMAR if "structured_outputs" in params else {})
    asked = GenerateRequest("", sampling, stream=True, logprobs=params.get("logprobs"))
    reader = OutputReader(Tokenizer(), asked)
    reader.sends_ids = True
    return reader


async def deltas(outputs: list[Output], params: dict[str, Any], deferred: Any) -> Any:
    """Return what the deltas of an answer tell together."""
    engine, sink = AsyncLLM(), Sink(deferred)
    error = await answered(engine, delta_reader(params), outputs, sink, **params)
    last = sink.taken[-1] if sink.taken else None
    return (
        "".join(each.text for each in sink.taken),
        [token for each in sink.taken for group in unpack(each.ids) for token in group],
        [token for each in sink.taken for token in each.tokens],
        last and (last.finish_reason, last.stop_reason, last.cumulative_logprob),
        (
            sum(each.num_tokens for each in sink.taken),
            any(each.is_last for each in sink.taken[:-1]),
        ),
        (type(error), str(error)),
        engine.engine_core.aborted,
    )
