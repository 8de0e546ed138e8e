"""The calls of TensorRT-LLM's own clients, request for request.

Read at triton-inference-server/tensorrtllm_backend, commit 1a9fa204 (v0.18):
inflight_batcher_llm/client/end_to_end_grpc_client.py and inflight_batcher_llm_client.py,
tools/inflight_batcher_llm/end_to_end_test.py and benchmark_core_model.py. The shapes are those of
its all_models/inflight_batcher_llm/*/config.pbtxt and of postprocessing/1/model.py, whose text has
no batch dimension.
"""

import functools
import json
import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.support.answers.triton_client import streamed, tensors
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served

Arrays = dict[str, Any]


@pytest.fixture
def server(ensemble_server: Served) -> Served:
    return ensemble_server


def wanted(library: Any, *names: str) -> list[Any]:
    return [library.InferRequestedOutput(name) for name in names]


def end_to_end(prompts: list[str], tokens: int, *, stream: bool, **more: Any) -> Arrays:
    """What end_to_end_grpc_client.py sends; several prompts are its --batch-inputs."""
    rows = [[prompt] for prompt in prompts]
    return {
        "text_input": np.array(rows).astype(object),
        "max_tokens": np.ones_like(rows, dtype=np.int32) * tokens,
        "stream": np.array([[stream]] * len(rows), dtype=bool),
        "beam_width": np.array([[1]] * len(rows), dtype=np.int32),
        "temperature": np.array([[1.0]] * len(rows), dtype=np.float32),
    } | more


def core(ids: list[int], tokens: int, *, streaming: bool) -> Arrays:
    """What inflight_batcher_llm_client.py sends."""
    return {
        "input_ids": np.array([ids], dtype=np.int32),
        "input_lengths": np.array([[len(ids)]], dtype=np.int32),
        "request_output_len": np.array([[tokens]], dtype=np.int32),
        "beam_width": np.array([[1]], dtype=np.int32),
        "temperature": np.array([[1.0]], dtype=np.float32),
        "streaming": np.array([[streaming]], dtype=bool),
        "end_id": np.array([[50256]], dtype=np.int32),
        "pad_id": np.array([[50256]], dtype=np.int32),
        "runtime_top_k": np.array([[1]], dtype=np.int32),
        "runtime_top_p": np.array([[0.0]], dtype=np.float32),
    }


def text(result: Any) -> str:
    assert not isinstance(result, InferenceServerException), result
    return str(result.as_numpy("text_output")[0].decode("utf-8"))


@pytest.mark.parametrize("stream", [False, True])
def test_end_to_end_grpc_client(server: Served, stream: bool) -> None:
    arrays = end_to_end(["a b"], 4, stream=stream, return_log_probs=np.array([[True]], dtype=bool))
    outputs = wanted(tritonclient.grpc, "text_output", "cum_log_probs", "output_log_probs")
    results = streamed(server, "ensemble", arrays, outputs=outputs, request_id="1")
    assert "".join(map(text, results)) == ("a ba b" if stream else "a ba ba b")
    for result in results:
        assert result.as_numpy("text_output").shape == (1,)
        assert result.as_numpy("cum_log_probs").shape == (1, 1)
        assert result.as_numpy("output_log_probs").shape[:2] == (1, 1)


def test_end_to_end_grpc_client_with_a_batch(server: Served) -> None:
    outputs = wanted(tritonclient.grpc, "text_output", "batch_index")
    results = streamed(
        server, "ensemble", end_to_end(["a b", "c d"], 1, stream=False), outputs=outputs
    )
    found = {int(result.as_numpy("batch_index")[0][0]): text(result) for result in results}
    assert found == {0: "a ba", 1: "c dc"}


def test_end_to_end_grpc_client_with_two_answers(server: Served) -> None:
    two = np.array([[2]], dtype=np.int32)
    arrays = end_to_end(["a b"], 1, stream=False, num_return_sequences=two)
    outputs = wanted(tritonclient.grpc, "text_output", "sequence_index")
    results = streamed(server, "ensemble", arrays, outputs=outputs)
    assert sorted(int(result.as_numpy("sequence_index")[0][0]) for result in results) == [0, 1]
    assert [text(result) for result in results] == ["a ba", "a ba"]


def test_inflight_batcher_llm_client(server: Served) -> None:
    results = streamed(server, "tensorrt_llm", core([5, 6, 7], 3, streaming=True), request_id="1")
    shown = [result.as_numpy("output_ids") for result in results]
    assert all(ids.shape[:2] == (1, 1) for ids in shown)
    lengths = [int(result.as_numpy("sequence_length")[0][0]) for result in results]
    assert lengths == [ids.shape[2] for ids in shown]
    assert sum(lengths) == 3


def test_inflight_batcher_llm_client_without_streaming(server: Served) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        client.async_infer(
            "echo_trtllm_infer",
            tensors(tritonclient.grpc, core([5, 6, 7], 3, streaming=False)),
            request_id="1",
            callback=lambda result, error: answers.put(error or result),
            parameters={"Streaming": False},
        )
        result = answers.get(timeout=HANG_SECONDS)
    assert not isinstance(result, InferenceServerException), result
    assert result.as_numpy("output_ids")[0][0][:3].tolist() == [5, 6, 7]
    assert result.as_numpy("sequence_length").tolist() == [[6]]


def ensemble_inputs(prompt: str, tokens: int) -> Arrays:
    """What end_to_end_test.py sends to `ensemble`."""
    return {
        "text_input": np.array([[prompt]]).astype(object),
        "max_tokens": np.array([[tokens]], dtype=np.int32),
        "bad_words": np.array([[""]], dtype=object),
        "stop_words": np.array([[""]], dtype=object),
    }


@pytest.mark.parametrize("library", [tritonclient.http, tritonclient.grpc])
def test_end_to_end_test(server: Served, library: Any) -> None:
    url = server.http if library is tritonclient.http else server.grpc
    outputs = wanted(library, "text_output", "cum_log_probs", "output_log_probs")
    with library.InferenceServerClient(url) as client:
        result = client.infer(
            "ensemble_infer",
            tensors(
                library,
                ensemble_inputs("a b", 2) | {"return_log_probs": np.array([[True]], dtype=bool)},
            ),
            outputs=outputs,
            request_id="0",
        )
    assert result.as_numpy("text_output").tolist() == [b"a ba b"]
    assert result.as_numpy("cum_log_probs").shape == (1, 1)
    assert result.as_numpy("output_log_probs").shape == (1, 1, 2)


def test_benchmark_core_model(server: Served) -> None:
    arrays = {
        "input_ids": np.array([[5, 6]], dtype=np.int32),
        "input_lengths": np.array([[2]], dtype=np.int32),
        "request_output_len": np.array([[2]], dtype=np.int32),
        "pad_id": np.array([[0]], dtype=np.int32),
        "end_id": np.array([[1]], dtype=np.int32),
    }
    with tritonclient.http.InferenceServerClient(server.http) as client:
        inputs = tensors(tritonclient.http, arrays)
        result = client.async_infer("echo_trtllm_infer", inputs, request_id="0").get_result()
    assert result.get_response()["id"] == "0"
    ids = result.as_numpy("output_ids")
    assert (ids.shape, ids[0][0][:2].tolist()) == ((1, 1, 4), [5, 6])


def test_a_batch_for_one_response_has_a_row_for_each_prompt(server: Served) -> None:
    arrays = end_to_end(["a b", "c"], 3, stream=False)
    arrays["num_return_sequences"] = np.array([[2], [2]], dtype=np.int32)
    arrays["return_log_probs"] = np.array([[True], [True]], dtype=bool)
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        result = client.infer("ensemble_infer", tensors(tritonclient.grpc, arrays))
    assert result.as_numpy("text_output").tolist() == [b"a ba ba"] * 2 + [b"cccc"] * 2
    assert result.as_numpy("cum_log_probs").shape == (2, 2)
    assert result.as_numpy("output_log_probs").shape == (2, 2, 3)


def test_sglangs_benchmark(server: Served) -> None:
    """The body of SGLang 0.5.23's `--backend trt`, which vLLM's benchmark had too.

    `end_id` is a token that no model has. It first asks whether there is anybody, at `/`.
    """
    assert server.ask("/")[0] == 200
    body = {
        "accumulate_tokens": True,
        "text_input": "a b c",
        "temperature": 0.000001,
        "top_p": 1.0,
        "max_tokens": 5,
        "stream": True,
        "min_length": 5,
        "end_id": 1048576,
    }
    status, _, answer = server.ask("/v2/models/ensemble/generate_stream", body)
    events = [json.loads(line.removeprefix(b"data:")) for line in answer.splitlines() if line]
    assert (status, [event["text_output"] for event in events]) == (
        200,
        ["a", " b", " c", "a", " b"],
    )


def stop_signals(length: Any = np.int32) -> Arrays:
    """What prepare_stop_signals makes; what it leaves uninitialised may be any number."""
    return {
        "input_ids": np.array([[7]], dtype=np.int32),
        "input_lengths": np.zeros([1, 1], dtype=np.int32),
        "request_output_len": np.array([[0]], dtype=length),
        "stop": np.array([[True]], dtype=bool),
    }


def begin(served: Served, model: str, arrays: Arrays, answers: queue.Queue[Any]) -> Any:
    """Send a streamed request with the id 7 and wait for its first response."""
    client = tritonclient.grpc.InferenceServerClient(served.grpc)
    client.start_stream(lambda result, error: answers.put(error or result))
    client.async_stream_infer(model, tensors(tritonclient.grpc, arrays), request_id="7")
    first = answers.get(timeout=HANG_SECONDS)
    assert not isinstance(first, InferenceServerException), first
    return client


def rest(client: Any, answers: queue.Queue[Any]) -> list[Any]:
    client.stop_stream()
    client.close()
    return [answers.get() for _ in range(answers.qsize())]


@pytest.mark.parametrize(
    ("model", "arrays", "output", "length"),
    [
        # Who stops requests to an ensemble is LlamaIndex.
        ("ensemble", end_to_end(["a b"], 3000, stream=True), "text_output", np.uint32),
        ("tensorrt_llm", core([5, 6], 3000, streaming=True), "output_ids", np.int32),
    ],
)
def test_a_stopped_stream_ends_with_an_ordinary_last_response(
    server: Served, model: str, arrays: Arrays, output: str, length: Any
) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client = begin(server, model, arrays, answers)
    stop = tensors(tritonclient.grpc, stop_signals(length))
    client.async_stream_infer(model, stop, request_id="7", parameters={"Streaming": True})
    results = rest(client, answers)
    assert not [each for each in results if isinstance(each, InferenceServerException)]
    finals = [
        result.as_numpy(output)
        for result in results
        if result.get_response().parameters["triton_final_response"].bool_param
    ]
    # The stopped request's, and that of the request that stopped it, which has no outputs.
    (last,) = [value for value in finals if value is not None]
    assert len(finals) == 2
    assert last.tolist() == ([b""] if output == "text_output" else [[[]]])


def test_a_stopped_answer_that_was_not_streamed_is_an_ordinary_response(server: Served) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    model = "echo_trtllm_infer"
    arrays, running = core([5, 6, 7], 3000, streaming=False), "lmi_engine_requests_running"
    # The gauge may still count the request that the test before stopped.
    wait_for(lambda: server.metric(running, "echo") == 0)
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        send: Callable[..., Any] = functools.partial(
            client.async_infer,
            model,
            request_id="7",
            callback=lambda result, error: answers.put(error or result),
            parameters={"Streaming": False},
        )
        send(inputs=tensors(tritonclient.grpc, arrays))
        wait_for(lambda: server.metric(running, "echo") == 1)
        send(inputs=tensors(tritonclient.grpc, stop_signals()))
        both = [answers.get(timeout=HANG_SECONDS) for _ in range(2)]
    assert not [str(each) for each in both if isinstance(each, InferenceServerException)]
    (ids,) = [
        each.as_numpy("output_ids") for each in both if each.as_numpy("output_ids") is not None
    ]
    assert ids.tolist() == [[[5, 6, 7]]]
    wait_for(lambda: server.metric(running, "echo") == 0)


def test_stop_without_an_id_is_an_error(server: Served) -> None:
    (error,) = streamed(server, "tensorrt_llm", stop_signals())
    assert isinstance(error, InferenceServerException)
    assert "A request id must be provided for request cancellation" in str(error)


def test_a_request_of_another_form_is_not_stopped(server: Served) -> None:
    body = {"id": "8", "text_input": "a b", "max_tokens": 100, "stream": True}
    with server.events("echo", body) as events:
        next(events)
        assert len(streamed(server, "tensorrt_llm", stop_signals(), request_id="8")) == 1
        texts = [event["text_output"] for event in events]
    assert len("".join(texts)) > 100


def test_outputs_that_nothing_here_fills_are_not_in_the_configuration(server: Served) -> None:
    """Those of return_perf_metrics: who asks for them is told by Triton, not left without."""
    wants = np.array([[True]], dtype=bool)
    arrays = end_to_end(["a b"], 1, stream=False, return_perf_metrics=wants)
    assert text(streamed(server, "ensemble", arrays)[0]) == "a ba"
    outputs = wanted(tritonclient.grpc, "text_output", "arrival_time_ns")
    (error,) = streamed(server, "ensemble", arrays, outputs=outputs)
    assert "unexpected inference output 'arrival_time_ns'" in str(error)
