"""One client fills the queue; another's request is answered within about one running round."""

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tritonclient.grpc as triton

from tests.support.answers.triton_client import strings, tensors
from tests.support.harm.attackers import RUNNING, WAITING
from tests.support.run.waiting import HANG_SECONDS, wait_for
from tests.support.servers.serving import Served

TOKENS = 20


class Client:
    """Asks over one gRPC stream, and notes whose answers come in the order in which they do."""

    def __init__(self, served: Served, ended: list[str], name: str) -> None:
        self._client = triton.InferenceServerClient(served.grpc)
        self._ended, self._name = ended, name
        self.errors: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._client.start_stream(self._hear)

    def ask(self, times: int = 1) -> None:
        text = tensors(triton, {"text_input": strings("a")})
        for _ in range(times):
            self._client.async_stream_infer("echo", text, parameters={"max_tokens": TOKENS})

    def _hear(self, result: Any, error: Any) -> None:
        if error is not None:
            self.errors.put(str(error))
            return
        self._ended.append(self._name)

    def close(self) -> None:
        self._client.stop_stream(cancel_requests=True)
        self._client.close()


@pytest.fixture
def served(crowded: Served) -> Served:
    return crowded


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def flood(served: Served, ended: list[str]) -> Iterator[Client]:
    """A client of no named tenant that asks for more than there is room for, and for all of it."""
    wait_for(lambda: served.settled("lmi_requests_open", "echo") == 0)
    client = Client(served, ended, "flood")
    client.ask(RUNNING + WAITING)

    def is_refused() -> bool:
        # What is answered meanwhile makes room: on a busy machine for more than any fixed excess.
        client.ask(10)
        return client.errors.qsize() >= 10

    wait_for(is_refused)
    ended.clear()
    yield client
    client.close()


@pytest.mark.usefixtures("flood")
def test_a_newcomer_through_an_alias_model_waits_for_what_runs_and_not_for_the_queue(
    served: Served, ended: list[str]
) -> None:
    body = {
        "inputs": [{"name": "inputs", "shape": [1], "datatype": "BYTES", "data": ["a"]}],
        "parameters": {"tenant": "b", "max_new_tokens": TOKENS},
    }

    def ask() -> None:
        status, answer = served.post("/v2/models/echo_infer/infer", body)
        ended.append("newcomer" if status == 200 else str(answer))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(lambda: "newcomer" in ended)
    # In the order of arrival it would be behind all that waited. On its way to the server others
    # are answered too: tests/unit/serving/test_dispatch.py has the exact order.
    assert ended.index("newcomer") <= WAITING // 4
    asking.join(HANG_SECONDS)
