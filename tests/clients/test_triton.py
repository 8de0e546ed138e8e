"""Libraries that reach Triton's own ports: tritonclient, LiteLLM's `triton/`, LlamaIndex."""

from typing import Any

import pytest

from tests.clients.conftest import ResultsOf
from tests.support.run.waiting import wait_for
from tests.support.servers.serving import Served

RUNNING = "lmi_engine_requests_running"


@pytest.fixture
def tritonclient(triton_results_of: ResultsOf) -> Any:
    return triton_results_of("use_tritonclient")


@pytest.fixture
def litellm(triton_results_of: ResultsOf) -> Any:
    return triton_results_of("use_litellm_triton")


@pytest.fixture
def llama_index(triton_results_of: ResultsOf) -> Any:
    return triton_results_of("use_llama_index")


@pytest.mark.parametrize("library", ["http", "grpc", "http_aio", "grpc_aio", "front_end"])
def test_tritonclient_infers(tritonclient: Any, library: str) -> None:
    assert tritonclient[library] == [True, ["a ba b"], ["a ba b", "ccc"]]


def test_tritonclient_infers_asynchronously(tritonclient: Any) -> None:
    assert tritonclient["async_infer_over_http"] == [["a ba b", "ccc"]] * 4
    assert tritonclient["async_infer_over_grpc"] == ["a ba b", "ccc"]


def test_tritonclient_streams(tritonclient: Any) -> None:
    assert tritonclient["grpc_stream"] == [["a b" * 32, True, True]] * 2
    assert tritonclient["grpc_aio_stream"] == "a ba b"


def test_tritonclient_is_told_what_was_wrong(tritonclient: Any) -> None:
    message = "max_tokens -1 is too small; accepted: a whole number, 1 or more"
    assert tritonclient["errors"] == [message] * 2


def test_tritonclient_leaves_a_stream(tritonclient: Any, ensemble_server: Served) -> None:
    assert tritonclient["cancelled"] == ["a"]
    wait_for(lambda: ensemble_server.metric("lmi_requests_total", "echo", outcome="cancelled"))
    wait_for(lambda: ensemble_server.metric(RUNNING, "echo") == 0)


def test_litellm_generates(litellm: Any) -> None:
    """Either limit counts; the prompt comes back in front, as from the peers; on either port."""
    assert litellm["generate"] == ["a ba ba"] * 4
    # On a busy machine two tokens may come as one piece.
    streamed = litellm["generate_streamed"]
    assert ["".join(pieces) for pieces in streamed] == ["a ba"] * 4
    assert all(len(pieces) > 1 and pieces[0][0] == "a" and not pieces[-1] for pieces in streamed)


def test_litellm_infers(litellm: Any) -> None:
    assert litellm["infer"] == ["a ba ba"] * 2
    assert litellm["infer_without_a_limit"] == "a b" + "a b" * 10


def test_litellm_sends_on_what_it_does_not_know(litellm: Any) -> None:
    assert litellm["more_parameters"] == ["a ba", "a ba ba", "a ba ba"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("wrong_value", "BadRequestError"),
        ("wrong_value_on_the_front_end", "BadRequestError"),
        ("wrong_model", "NotFoundError"),
        ("embedding", "BadRequestError"),
    ],
)
def test_litellm_tells_errors_of_triton_apart(litellm: Any, name: str, error: str) -> None:
    assert litellm[name]["raised"] == error


def test_llama_index(llama_index: Any) -> None:
    """It takes one response less than it asked for tokens; on a busy machine two share one."""
    for text in (llama_index["complete"], "".join(llama_index["stream_complete"])):
        assert text in ("a b ca b", "a b ca b c")
    # Its own way to make a prompt of a chat.
    for text in (llama_index["chat"], llama_index["stream_chat"]):
        assert text in ("user: a b c\nassistant:", "user: a b c\nassistant: ")


def test_llama_index_stops_a_request(llama_index: Any) -> None:
    first, more = llama_index["stopped"]
    # Tokens that came together are one piece.
    assert first.startswith("a")
    # Of 3000.
    assert more < 1000
