"""Several workers of one model: they share the load, and take over from one that dies."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.serving import Served, serve, write_properties
from tests.support.waiting import wait_for

COUNT = 200
TAKEN = "lmi_worker_requests_total"


@pytest.fixture(scope="module")
def two(
    tmp_path_factory: pytest.TempPathFactory, tiny_properties: dict[str, Any]
) -> Iterator[Served]:
    """Two workers of the echo, and two of the real vLLM."""
    folder = tmp_path_factory.mktemp("two")
    workers = {"minWorkers": 2, "maxWorkers": 2, "option.parallel_loading": "true"}
    echo = {"option.rolling_batch": "echo", "option.token_seconds": 0.002}
    without = {name: tiny_properties[name] for name in tiny_properties if "lora" not in name}
    models = [
        write_properties(folder / "pair", echo | workers),
        write_properties(folder / "tiny", without | workers),
    ]
    with serve(models, folder) as server:
        yield server


def shares(served: Served, model: str) -> list[float]:
    return [served.metric(TAKEN, model, str(worker)) for worker in range(2)]


def ask(served: Served, model: str, count: int) -> list[str]:
    """Ask from eight clients at once; return the answers."""
    body = {"inputs": "The capital of Italy is", "parameters": {"max_new_tokens": 8}}
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: served.generate(model, body), range(count)))
    assert {status for status, _ in answers} == {200}
    wait_for(lambda: sum(shares(served, model)) == count)
    return [answer["generated_text"] for _, answer in answers]


def test_a_steady_load_is_shared(two: Served) -> None:
    """A worker that the machine's other work slows gets less: the shares need not be even."""
    ask(two, "pair", COUNT)
    assert min(shares(two, "pair")) > COUNT / 4


def test_two_workers_of_vllm_give_the_same_answers(two: Served) -> None:
    """Two engines starve each other on two cores, and who is slow gets less: no even shares."""
    assert set(ask(two, "tiny", COUNT)) == {" Rome."}
    assert min(shares(two, "tiny")) > 0


def test_one_after_the_other_uses_both(two: Served) -> None:
    """Who had less before comes first, so the two end level."""
    begin = sum(shares(two, "pair"))
    for _ in range(40):
        two.generate("pair", {"inputs": "a", "parameters": {"max_new_tokens": 1}})
    wait_for(lambda: sum(shares(two, "pair")) == begin + 40)
    first, second = shares(two, "pair")
    assert abs(first - second) <= 2


def test_a_dead_worker_takes_no_request_with_it(two: Served) -> None:
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 1000}}
    with ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(two.generate, "pair", body) for _ in range(8)]
        wait_for(lambda: two.metric("lmi_engine_requests_running", "pair") == 8)
        two.workers("pair")[0].kill()
        ended = [answer.result() for answer in answers]
    assert {status for status, _ in ended} == {200}
    wait_for(lambda: two.metric("lmi_migrations_total", "pair") == 4)
    # The other serves on, and soon there are two again.
    assert two.generate("pair", {"inputs": "a", "parameters": {"max_new_tokens": 1}})[0] == 200
    wait_for(lambda: len(two.workers("pair")) == 2)
