"""The thin models for other clients: they share one model's workers, its limits and its fate."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from tests.support.answers.streams import request_of
from tests.support.answers.triton_client import streamed, strings, tensors
from tests.support.interpreter.releases import IS_COMPAT
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served, serve, write_properties

RUNNING = "lmi_engine_requests_running"
ENDED = "lmi_requests_total"
ENDINGS = ("unavailable", "cancelled", "length")
LOADS = 25 if IS_COMPAT else 8
"""What is guarded against are faults of other releases of Triton, which `make compat` runs."""


@pytest.fixture(scope="module")
def aliases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("aliases")
    slow = write_properties(
        folder / "slow",
        {
            "option.rolling_batch": "echo",
            "option.token_seconds": 0.01,
            "option.max_rolling_batch_size": 4,
            "job_queue_size": 1,
        },
    )
    options = ("--clients", "trtllm,infer,raw", "--control-key", str(folder / "control.key"))
    with serve([slow], folder, *options) as server:
        yield server


def test_the_form_of_tritons_openai_front_end_is_answered(aliases: Served) -> None:
    """What it sends to a model whose backend is not vllm."""
    arrays: dict[str, Any] = {
        "text_input": np.array([["a b"]], dtype=np.object_),
        "stream": np.array([[True]]),
        "max_tokens": np.array([[3]], np.int32),
        "stop_words": np.array([["z"]], dtype=np.object_),
        "top_p": np.array([[1.0]], np.float32),
        "temperature": np.array([[1.0]], np.float32),
        "frequency_penalty": np.array([[0.0]], np.float32),
        "presence_penalty": np.array([[0.0]], np.float32),
        "seed": np.array([[7]], np.uint64),
        "return_num_input_tokens": np.array([[True]]),
        "return_num_output_tokens": np.array([[True]]),
    }
    answers = streamed(aliases, "slow_trtllm", arrays)
    assert b"".join(each.as_numpy("text_output")[0] for each in answers) == b"a ba"
    assert sum(int(each.as_numpy("num_output_tokens").sum()) for each in answers) == 3
    assert answers[-1].as_numpy("num_input_tokens").tolist() == [[2]]


_OWN = {"inputs": "a b c", "parameters": {"max_new_tokens": 3000}}
_INFER = {
    "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["a b c"]}],
    "parameters": {"max_tokens": 3000, "timeout": 1_500_000},
}


@contextlib.contextmanager
def _over_http(port: int, path: str, body: dict[str, Any]) -> Iterator[None]:
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(request_of(path, json.dumps(body).encode()))
        yield


@contextlib.contextmanager
def _over_grpc(served: Served) -> Iterator[None]:
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        text = tensors(tritonclient.grpc, {"text_input": strings("a b c")})
        more = {"max_tokens": 3000}
        asked = client.async_infer("slow_infer", text, lambda result, error: None, parameters=more)
        yield
        asked.cancel()


def test_who_leaves_a_whole_answer_frees_its_place(aliases: Served) -> None:
    """Triton 24.10 does not look at its HTTP connections meanwhile: there a timeout ends it."""
    aliases.settled(ENDED, "slow")
    http, triton = aliases.http_port, "/v2/models/slow"

    def ended() -> dict[str, float]:
        return {name: aliases.metric(ENDED, "slow", outcome=name) for name in ENDINGS}

    before = ended()
    with _over_http(aliases.port, "/invocations", _OWN), _over_grpc(aliases):
        wait_for(lambda: aliases.metric(RUNNING, "slow") == 2)
        with (
            _over_http(http, f"{triton}/generate", _OWN | {"timeout": 1_500_000}),
            _over_http(http, f"{triton}_infer/infer", _INFER),
        ):
            # They may run for less than a busy machine takes to count them.
            wait_for(lambda: aliases.metric(RUNNING, "slow") == 4 or ended() != before)
    wait_for(lambda: aliases.metric(RUNNING, "slow") == 0)
    # The alias model cancels the one that it was asked for.
    expected = {"unavailable": 1, "cancelled": 3, "length": 0}
    wait_for(lambda: sum(ended().values()) == sum(before.values()) + 4)
    assert {name: count - before[name] for name, count in ended().items()} == expected


def test_the_limits_of_the_model_are_those_of_its_alias_models(aliases: Served) -> None:
    """Four run and one waits, by whichever model they came."""
    body = {"inputs": ["a b"] * 6, "parameters": {"max_new_tokens": 2}}
    for model in ("slow", "slow_infer"):
        status, answer = aliases.generate(model, body)
        assert status == 400
        assert "6 answers at once; accepted: at most 5" in answer["error"]
    # Once the places of those who left are free, which their model learns within a tick.
    wait_for(lambda: aliases.generate("slow_infer", body | {"inputs": ["a b"] * 5})[0] == 200)


@pytest.mark.parametrize("model", ["slow_infer", "slow_raw"])
def test_a_stream_through_an_alias_model_of_one_response_comes_whole(
    aliases: Served, model: str
) -> None:
    body = {"inputs": "a b", "stream": True, "parameters": {"max_new_tokens": 3}}
    data = [json.dumps(body)]
    text = {"name": "request", "shape": [1], "datatype": "BYTES", "data": data}
    status, answer = aliases.post(f"/v2/models/{model}/infer", {"inputs": [text]})
    assert status == 200
    (output,) = answer["outputs"]
    assert output["data"][0].count('"token"') == 3


def test_an_alias_model_waits_for_its_model(aliases: Served) -> None:
    body = {"text_input": "a b", "max_tokens": 1, "exclude_input_in_output": True}
    aliases.control("slow/unload")
    wait_for(lambda: not aliases.is_ready("slow"))
    wait_for(lambda: aliases.generate("slow_trtllm", body)[0] == 400)
    _, answer = aliases.generate("slow_trtllm", body)
    assert answer["error"].startswith("UNAVAILABLE: model slow, whose workers this one shares: it")
    aliases.control("slow/load")
    wait_for(lambda: aliases.generate("slow_trtllm", body)[0] == 200)


def test_after_many_loads_and_unloads_under_load_everything_works(aliases: Served) -> None:
    """The next stub starts while the last one still ends."""
    is_over = threading.Event()
    statuses: set[int] = set()

    def ask(model: str, body: dict[str, Any]) -> None:
        while not is_over.wait(0.02):
            statuses.add(aliases.generate(model, body)[0])

    own = {"inputs": "a b", "parameters": {"max_new_tokens": 20}}
    shared = {"text_input": "a b", "max_tokens": 20, "exclude_input_in_output": True}
    asking = [("slow", own), ("slow_trtllm", shared), ("slow_trtllm", shared)]
    threads = [threading.Thread(target=ask, args=each) for each in asking]
    for thread in threads:
        thread.start()
    try:
        for _ in range(LOADS):
            assert aliases.control("slow/unload")[0] == 200
            assert aliases.control("slow/load")[0] == 200
            # Until its thread has taken a request, Triton dies of an unload: StopBackendThread
            # asks for the instance that the thread gives back after the load's last answer.
            wait_for(lambda: aliases.generate("slow", own)[0] == 200)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert 200 in statuses
    assert statuses <= {200, 400, 404}
    for model, body in asking:
        wait_for(lambda model=model, body=body: aliases.generate(model, body)[0] == 200)  # type: ignore[misc]
    assert aliases.ask("/invocations", own)[0] == 200
    wait_for(lambda: aliases.metric("lmi_requests_open", "slow") == 0)
    # The stubs that were replaced, and their workers, have ended.
    wait_for(lambda: len(aliases.workers("slow")) == 1)


def test_an_edited_file_is_taken_when_the_model_is_loaded_again(aliases: Served) -> None:
    (server,) = aliases.named("tritonserver")
    (repository,) = (
        Path(each.partition("=")[2])
        for each in server.cmdline()
        if each.startswith("--model-repository=")
    )
    properties = repository / "slow" / "serving.properties"
    before = properties.read_text(encoding="utf-8")
    body = {"inputs": "a", "parameters": {"max_new_tokens": 1}}
    properties.write_text(f"{before}\noption.fail_on=a\n", encoding="utf-8")
    aliases.control("slow/unload")
    aliases.control("slow/load")
    wait_for(lambda: "told to fail" in aliases.generate("slow", body)[1].get("error", ""))
    # Triton looks at the times of a model's files, and here loads the next before it ends the last.
    properties.write_text(before, encoding="utf-8")
    aliases.control("slow/load")
    wait_for(lambda: aliases.generate("slow", body)[0] == 200)


SHORT = {"inputs": "a b c", "parameters": {"max_new_tokens": 3}}


def test_the_front_end_finds_models_as_they_come_and_go(aliases: Served) -> None:
    assert aliases.control("slow/unload")[0] == 200
    wait_for(lambda: aliases.ask("/v1/models")[2] == b'{"object":"list","data":[]}')
    assert aliases.ask("/invocations", SHORT)[0] == 503
    # Triton's own answer, which depends on its release.
    assert aliases.ask("/v2/models/slow/ready")[0] in (400, 404)
    assert aliases.ask("/v2/models/slow/generate", SHORT)[0] in (400, 404)
    assert aliases.control("slow/load")[0] == 200
    wait_for(lambda: aliases.ask("/invocations", SHORT)[0] == 200)
    names = [card["id"] for card in json.loads(aliases.ask("/v1/models")[2])["data"]]
    assert names[0] == "slow"
    # Clients that name none send a URL or a word; what is another model's name is unknown.
    for path, body in (("/v1/chat/completions", {"messages": []}), ("/generate", {"inputs": "a"})):
        named = {"http://a:8080/v1/": 200, "HTTPS://b": 200, "tgi": 200, "http": 404}
        for name, status in named.items():
            assert aliases.ask(path, body | {"model": name})[0] == status


def test_metrics_are_tritons_and_ours_and_one_series_of_each_that_fleets_read(
    aliases: Served,
) -> None:
    def metrics() -> str:
        status, headers, data = aliases.ask("/metrics")
        assert (status, headers["content-type"].partition(";")[0]) == (200, "text/plain")
        return data.decode()

    with _over_http(aliases.port, "/invocations", _OWN | {"stream": True}):
        wait_for(lambda: 'vllm:num_requests_running{model_name="slow"} 1\n' in metrics())
        # Beside Triton's, which has one of each worker once its stub has published them.
        wait_for(lambda: "vllm:gpu_cache_usage_perc{" in metrics())
        text = metrics()
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert text.count(f"\nvllm:{name}") == text.count(f"# TYPE vllm:{name} gauge") == 1
    # The stub publishes once a second.
    wait_for(lambda: 'lmi_requests_open{model="slow"' in metrics())
    assert "nv_inference_request_success" in metrics()
