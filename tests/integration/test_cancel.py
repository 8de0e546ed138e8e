"""A client that leaves frees its request in the engine; others continue."""

import queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from tests.support.answers.triton_client import strings, tensors
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served

RUNNING = "lmi_engine_requests_running"
LONG = {"max_new_tokens": 900, "ignore_eos": True}


def _cancelled(served: Served) -> float:
    """Return how many requests ended because their clients left, and not by themselves."""
    return served.metric("lmi_requests_total", "tiny", outcome="cancelled")


def test_dropping_the_http_connection_frees_the_request(served: Served) -> None:
    body: dict[str, Any] = {"inputs": "Tell a story:", "parameters": LONG, "stream": True}
    cancelled = _cancelled(served)
    with served.events("tiny", body) as events:
        next(events)
        wait_for(lambda: served.metric(RUNNING, "tiny") == 1)
    wait_for(lambda: _cancelled(served) == cancelled + 1)
    wait_for(lambda: served.metric(RUNNING, "tiny") == 0)
    wait_for(lambda: served.metric("lmi_requests_open", "tiny") == 0)


def test_cancelling_a_grpc_stream_frees_all_its_requests(served: Served) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    arrays: dict[str, Any] = {"inputs": strings("Tell a story:"), "stream": np.array([True])}
    inputs = tensors(tritonclient.grpc, arrays)
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        cancelled = _cancelled(served)
        client.start_stream(lambda result, error: answers.put(error or result))
        # So many that they last, also where the machine is busy with something else.
        for _ in range(64):
            client.async_stream_infer("tiny", inputs, parameters=LONG)
        wait_for(lambda: served.metric(RUNNING, "tiny") >= 4)
        client.stop_stream(cancel_requests=True)
    wait_for(lambda: _cancelled(served) >= cancelled + 4)
    wait_for(lambda: served.metric(RUNNING, "tiny") == 0)


@pytest.mark.parametrize("model", ["tiny", "echo"])
def test_others_go_on_when_one_is_cancelled(served: Served, model: str) -> None:
    prompt = "Count to one hundred:"
    body: dict[str, Any] = {"inputs": prompt, "parameters": {"max_new_tokens": 120}, "stream": True}
    _, whole = served.generate(model, body | {"stream": False})
    leaving = {"inputs": "Tell a story:", "parameters": {"max_new_tokens": 900}, "stream": True}
    with served.events(model, body) as staying:
        with served.events(model, leaving) as events:
            next(events)
        text = "".join(event["text_output"] for event in staying)
    assert text == whole["generated_text"]
