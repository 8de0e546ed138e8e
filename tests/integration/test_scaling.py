"""Workers between minWorkers and maxWorkers: load starts them, and idleness ends them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.serving import Served, serve, write_properties
from tests.support.waiting import wait_for

LONG = {"inputs": "a b", "parameters": {"max_new_tokens": 500}}
MODEL = {
    "option.rolling_batch": "echo",
    "option.token_seconds": 0.002,
    "option.start_seconds": 1,
    "option.max_rolling_batch_size": 2,
    "minWorkers": 1,
    "maxWorkers": 2,
    "max_idle_time": 1,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("scaled")
    with serve([write_properties(folder / "scaled", MODEL)], folder) as server:
        yield server


def ready(served: Served, model: str) -> float:
    return served.metric("lmi_worker_ready", model)


def wanted(served: Served, model: str) -> float:
    return served.metric("lmi_worker_wanted", model)


def test_load_starts_a_worker_and_idleness_ends_it(server: Served) -> None:
    wait_for(lambda: (len(server.workers("scaled")), ready(server, "scaled")) == (1, 1))
    with ThreadPoolExecutor(12) as clients:
        answers = [clients.submit(server.generate, "scaled", LONG) for _ in range(12)]
        wait_for(lambda: ready(server, "scaled") == 2)
        assert {answer.result()[0] for answer in answers} == {200}
    for worker in "01":
        wait_for(lambda one=worker: server.metric("lmi_worker_requests_total", "scaled", one))  # type: ignore[misc]
    server.logged(r"worker scaled/1 is added, now 2 of maxWorkers 2: \d requests wait")
    wait_for(lambda: len(server.workers("scaled")) == 1)
    wait_for(lambda: (ready(server, "scaled"), wanted(server, "scaled")) == (1, 1))
    server.logged("worker scaled/1 is stopped, now 1 of minWorkers 1")
    assert server.metric("lmi_worker_deaths_total", "scaled") == 0
    ((described,),) = (each["models"] for each in json.loads(server.ask("/models/scaled")[2]))
    workers = [{"id": 1, "status": "READY"}]
    (group,) = described["workerGroups"]
    assert group == {"minWorkers": 1, "maxWorkers": 2, "workers": workers}


def test_a_worker_killed_while_another_is_started(server: Served) -> None:
    wait_for(lambda: wanted(server, "scaled") == 1)
    before = server.log()

    def is_new(line: str) -> bool:
        return server.log().count(line) > before.count(line)

    with ThreadPoolExecutor(12) as clients:
        answers = [clients.submit(server.generate, "scaled", LONG) for _ in range(12)]
        wait_for(lambda: is_new("worker scaled/1 is added"))
        server.workers("scaled")[0].kill()
        ended = [answer.result() for answer in answers]
    assert all(status == 200 or "worker scaled/0" in reply["error"] for status, reply in ended)
    # Both come back, and the one that is no longer needed ends. That both are ready may be over
    # before it is asked; the log keeps it.
    wait_for(lambda: is_new("worker scaled/0 is ready") and is_new("worker scaled/1 is ready"))
    wait_for(lambda: is_new("worker scaled/1 is stopped"))
    wait_for(lambda: (ready(server, "scaled"), wanted(server, "scaled")) == (1, 1))
    assert server.generate("scaled", LONG)[0] == 200
