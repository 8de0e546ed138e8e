"""OpenAI's bodies, answered by vLLM's own application in a real worker process."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lmi_backend.errors import CancelledError
from lmi_backend.generation import Call

CHAT = [{"role": "user", "content": "What is the capital of Italy?"}]
ROME = "The capital of Italy is Rome."
LONG = {"prompt": "Tell a story:", "max_tokens": 900, "ignore_eos": True}


@pytest.fixture(scope="module")
def vllm(start: Callable[..., Any], tiny_properties: dict[str, Any]) -> Iterator[Any]:
    # A key of vLLM's server guards nothing here, and must not shut LMI's clients out.
    environment = "VLLM_CPU_KVCACHE_SPACE=1,VLLM_API_KEY=secret"
    with start(tiny_properties | {"option.env": environment}) as harness:
        yield harness


def ask(vllm: Any, path: str, body: Any = None) -> tuple[int, Any]:
    """Return status and body."""
    raw = b"" if body is None else json.dumps(body).encode()
    pieces = vllm.submit(Call(path, raw)).wait().deltas
    assert [piece.is_last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    data = b"".join(piece.data for piece in pieces)
    return pieces[0].status, json.loads(data)


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": "lmi"}])
def test_a_model_need_not_be_named(vllm: Any, model: dict[str, Any]) -> None:
    status, said = ask(vllm, "/v1/chat/completions", {"messages": CHAT, "temperature": 0} | model)
    assert (status, said["model"]) == (200, "lmi")
    assert said["choices"][0]["message"]["content"] == ROME


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_are_counted_for_the_call(vllm: Any, stream: bool) -> None:
    body = LONG | {"n": 2, "max_tokens": 20, "stream": stream}
    pieces = vllm.submit(Call("/v1/completions", json.dumps(body).encode())).wait().deltas
    assert sum(piece.num_tokens for piece in pieces) == 40
    assert pieces[-1].num_prompt_tokens > 0


@pytest.mark.parametrize(
    ("wrong", "status"), [({"model": "none"}, 404), ({"temperature": -1}, 400)]
)
def test_errors_have_their_status(vllm: Any, wrong: dict[str, Any], status: int) -> None:
    for body in ({"messages": CHAT} | wrong, {"messages": CHAT, "stream": True} | wrong):
        got, said = ask(vllm, "/v1/chat/completions", body)
        assert (got, said["error"]["code"]) == (status, status)


@pytest.mark.parametrize("how", [{"stream": True}, {"n": 2}])
def test_a_client_that_leaves_frees_the_engine(vllm: Any, how: dict[str, Any]) -> None:
    # Many, so that they would not end by themselves in the time given.
    call = Call("/v1/completions", json.dumps(LONG | how).encode())
    sinks = [vllm.submit(call) for _ in range(32)]
    _wait_for(lambda: vllm.running() > 0)
    for sink in sinks:
        sink.is_gone = True
    assert all(isinstance(sink.wait().error, CancelledError) for sink in sinks)
    _wait_for(lambda: vllm.running() == 0, seconds=3)


def _wait_for(is_true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)
