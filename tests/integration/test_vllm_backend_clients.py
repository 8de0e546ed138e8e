"""The requests of the clients of Triton's vLLM backend, as they send them.

What `samples/client.py` and `ci/L0_multi_gpu_vllm`, `ci/L0_backend_vllm` make of a request, at
triton-inference-server/vllm_backend 8de0c14: the parameters stand in a tensor and beside it, their
numbers are strings, and errors are compared word for word.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException

from tests.support.answers.triton_client import strings, tensors
from tests.support.servers.serving import Served

SAMPLING = {"temperature": "0.0", "top_p": "0.95", "max_tokens": "100"}


def request(
    prompt: str,
    number: int,
    *,
    stream: bool,
    excludes: bool | None,
    has_tensor: bool = True,
    **more: str,
) -> dict[str, Any]:
    arrays: dict[str, Any] = {"text_input": strings(prompt), "stream": np.array([stream])}
    if has_tensor:
        arrays["sampling_parameters"] = strings(json.dumps(SAMPLING | more))
    if excludes is not None:
        arrays["exclude_input_in_output"] = np.array([excludes])
    return {
        "model_name": "tiny",
        "inputs": tensors(aio, arrays),
        "outputs": [aio.InferRequestedOutput("text_output")],
        "request_id": str(number),
        "parameters": SAMPLING | more,
    }


async def ask(served: Served, requests: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the texts of each request's responses; raise the first error."""

    async def send() -> AsyncIterator[dict[str, Any]]:
        for each in requests:
            yield each

    texts: dict[str, list[str]] = {each["request_id"]: [] for each in requests}
    ended = 0
    async with aio.InferenceServerClient(served.grpc) as client:
        async for result, error in client.stream_infer(send()):
            if error is not None:
                raise error
            response = result.get_response()
            texts[response.id] += [text.decode() for text in result.as_numpy("text_output")]
            ended += response.parameters["triton_final_response"].bool_param
            if ended == len(requests):
                break
    return texts


@pytest.mark.parametrize("has_tensor", [True, False])
@pytest.mark.parametrize(("stream", "excludes"), [(False, False), (False, True), (True, True)])
async def test_its_own_client_is_answered(
    served: Served, questions: dict[str, str], *, stream: bool, excludes: bool, has_tensor: bool
) -> None:
    requests = [
        request(prompt, number, stream=stream, excludes=excludes, has_tensor=has_tensor)
        for number, prompt in enumerate(questions)
    ]
    texts = await ask(served, requests)
    assert {n: "".join(chunks) for n, chunks in texts.items()} == {
        str(number): ("" if excludes else prompt) + answer
        for number, (prompt, answer) in enumerate(questions.items())
    }
    assert stream or all(len(chunks) == 1 for chunks in texts.values())


async def test_parameters_that_nobody_knows_change_nothing(
    served: Served, questions: dict[str, str]
) -> None:
    prompt, answer = next(iter(questions.items()))
    sent = request(prompt, 0, stream=False, excludes=True, best_effort="yes")
    assert await ask(served, [sent]) == {"0": [answer]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"stream": True, "excludes": False},
            "Error generating stream: When streaming, `exclude_input_in_output` = False is not "
            "allowed.",
        ),
        (
            {"stream": False, "excludes": None, "lora_name": "bavarian"},
            "LoRA bavarian is not supported, we currently support ['wrong']",
        ),
    ],
)
async def test_errors_are_those_its_clients_compare(
    served: Served, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InferenceServerException) as refusal:
        await ask(served, [request("The", 0, **options)])
    assert refusal.value.message() == message
