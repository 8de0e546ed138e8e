"""`tritonclient`, each of its four libraries, with the tensors of either of Triton's backends."""

import asyncio
import queue
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from results import GRPC, HTTP, URL, run
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

PROMPT = {"text_input": np.array([b"a b"], dtype=object)}
BATCH = {
    "text_input": np.array([[b"a b"], [b"c"]], dtype=object),
    "max_tokens": np.array([[2], [2]], dtype=np.int32),
}
LIMIT = {"max_tokens": 2}


def _inputs(library: Any, arrays: dict[str, Any]) -> list[Any]:
    made = []
    for name, array in arrays.items():
        made.append(library.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        made[-1].set_data_from_numpy(array)
    return made


def _texts(result: Any) -> list[str]:
    return [text.decode() for text in result.as_numpy("text_output")]


def _infer(library: Any, url: str) -> Any:
    with library.InferenceServerClient(url) as client:
        one = client.infer("echo_infer", _inputs(library, PROMPT), parameters=LIMIT)
        batch = client.infer("ensemble_infer", _inputs(library, BATCH))
        is_there = client.is_server_live() and client.is_model_ready("echo")
        return [is_there, _texts(one), _texts(batch)]


def async_infer_over_http() -> Any:
    with tritonclient.http.InferenceServerClient(HTTP, concurrency=4) as client:
        inputs = _inputs(tritonclient.http, BATCH)
        running = [client.async_infer("ensemble_infer", inputs) for _ in range(4)]
        return [_texts(each.get_result()) for each in running]


def async_infer_over_grpc() -> Any:
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(GRPC) as client:
        client.async_infer(
            "ensemble_infer",
            _inputs(tritonclient.grpc, BATCH),
            callback=lambda result, error: answers.put(error or result),
        )
        return _texts(answers.get(timeout=60))


async def _infer_with_aio(library: Any, url: str) -> Any:
    async with library.InferenceServerClient(url) as client:
        one = await client.infer("echo_infer", _inputs(library, PROMPT), parameters=LIMIT)
        batch = await client.infer("ensemble_infer", _inputs(library, BATCH))
        is_there = await client.is_server_live() and await client.is_model_ready("echo")
        return [is_there, _texts(one), _texts(batch)]


def _streamed(model: str, arrays: dict[str, Any], **options: Any) -> Any:
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(GRPC) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer(model, _inputs(tritonclient.grpc, arrays), **options)
        client.stop_stream()
    results = [answers.get() for _ in range(answers.qsize())]
    last = results[-1].get_response().parameters["triton_final_response"].bool_param
    return ["".join(text for result in results for text in _texts(result)), len(results) > 1, last]


def grpc_stream() -> Any:
    """As clients of the vLLM backend stream, and those of TensorRT-LLM's.

    A busy stub sends a few tokens at once, but not as many as these.
    """
    stream = {"stream": np.array([True])}
    ensemble = {
        "text_input": BATCH["text_input"][:1],
        "max_tokens": np.array([[64]], dtype=np.int32),
        "stream": np.array([[True]]),
    }
    return [
        _streamed("echo", PROMPT | stream, parameters={"max_tokens": "64"}),
        _streamed("ensemble", ensemble),
    ]


async def _stream_with_aio() -> Any:
    async def requests() -> Any:
        arrays = PROMPT | {"stream": np.array([True])}
        inputs = _inputs(tritonclient.grpc.aio, arrays)
        yield {"model_name": "echo", "inputs": inputs, "parameters": {"max_tokens": 4}}

    text = ""
    async with tritonclient.grpc.aio.InferenceServerClient(GRPC) as client:
        async for result, error in client.stream_infer(requests()):
            if error is not None:
                raise error
            text += "".join(_texts(result))
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
    return text


def cancelled() -> Any:
    """Leave a long stream as the library offers it."""
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(GRPC) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        arrays = PROMPT | {"stream": np.array([True])}
        inputs = _inputs(tritonclient.grpc, arrays)
        client.async_stream_infer("echo", inputs, parameters={"max_tokens": 3000})
        first = _texts(answers.get(timeout=60))
        client.stop_stream(cancel_requests=True)
    return first


def _refused(library: Any, url: str) -> Any:
    with library.InferenceServerClient(url) as client:
        try:
            client.infer("echo_infer", _inputs(library, PROMPT), parameters={"max_tokens": -1})
        except InferenceServerException as error:
            return error.message()
    return None


CASES = {
    "http": lambda: _infer(tritonclient.http, HTTP),
    "grpc": lambda: _infer(tritonclient.grpc, GRPC),
    "front_end": lambda: _infer(tritonclient.http, URL.removeprefix("http://")),
    "http_aio": lambda: asyncio.run(_infer_with_aio(tritonclient.http.aio, HTTP)),
    "grpc_aio": lambda: asyncio.run(_infer_with_aio(tritonclient.grpc.aio, GRPC)),
    "grpc_aio_stream": lambda: asyncio.run(_stream_with_aio()),
    "errors": lambda: [_refused(tritonclient.http, HTTP), _refused(tritonclient.grpc, GRPC)],
}

if __name__ == "__main__":
    run(globals() | CASES)
