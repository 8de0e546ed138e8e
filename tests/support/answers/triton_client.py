"""Requests as Triton's own client sends them, and what comes of a stream."""

import queue
from collections.abc import Mapping
from typing import Any

import numpy as np
import tritonclient.grpc
from tritonclient.utils import np_to_triton_dtype

from tests.support.servers.serving import Served


def strings(*values: str) -> Any:
    return np.array(values, dtype=np.object_)


def tensors(library: Any, arrays: Mapping[str, Any]) -> list[Any]:
    """Return the inputs of a request to `tritonclient.grpc`, its `aio`, or `tritonclient.http`."""
    made = []
    for name, array in arrays.items():
        made.append(library.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        made[-1].set_data_from_numpy(array)
    return made


def streamed(served: Served, model: str, arrays: Mapping[str, Any], **options: Any) -> list[Any]:
    """Return what came until the stream was closed: results, and errors."""
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer(model, tensors(tritonclient.grpc, arrays), **options)
        client.stop_stream()
    return [answers.get() for _ in range(answers.qsize())]
