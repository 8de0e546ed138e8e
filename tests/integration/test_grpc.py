"""tritonclient over gRPC: sync and asyncio streams, and its HTTP client for the model's state."""

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http

from tests.support.answers.triton_client import streamed, strings, tensors
from tests.support.servers.serving import Served

STREAMS = 64


def _arrays(prompt: str, *, stream: bool = True) -> dict[str, Any]:
    return {"inputs": strings(prompt), "stream": np.array([stream])}


def _inputs(prompt: str) -> list[Any]:
    return tensors(tritonclient.grpc, _arrays(prompt))


def _text(result: Any, output: str = "text_output") -> str:
    array = result.as_numpy(output)
    return "" if array is None else bytes(array[0]).decode()


async def test_64_concurrent_streams_each_get_exactly_their_own_text(
    served: Served, questions: dict[str, str], long_questions: dict[str, str]
) -> None:
    known = questions | long_questions
    prompts = list(itertools.islice(itertools.cycle(known), STREAMS))

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for number, prompt in enumerate(prompts):
            yield {
                "model_name": "tiny",
                "inputs": _inputs(prompt),
                "request_id": str(number),
                "parameters": {"max_new_tokens": 300},
            }

    texts: dict[str, str] = defaultdict(str)
    ended = 0
    async with tritonclient.grpc.aio.InferenceServerClient(served.grpc) as client:
        async for result, error in client.stream_infer(requests()):
            assert error is None
            response = result.get_response()
            texts[response.id] += _text(result)
            ended += response.parameters["triton_final_response"].bool_param
            if ended == STREAMS:
                break
    assert texts == {str(n): known[prompt] for n, prompt in enumerate(prompts)}


def test_named_outputs_are_the_ones_that_come(served: Served) -> None:
    wanted = [tritonclient.grpc.InferRequestedOutput(n) for n in ("text_output", "finish_reason")]
    arrays = _arrays("The capital of France is", stream=False)
    (result,) = streamed(served, "tiny", arrays, outputs=wanted)
    assert {output.name for output in result.get_response().outputs} == {
        "text_output",
        "finish_reason",
    }
    assert _text(result) == " Paris."
