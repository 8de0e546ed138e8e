"""What concerns every worker reaches each of them, and ends once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lmi_backend.clients.openai import RESETS
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import failure_of
from tests.support.service_bench import Bench, Sink
from tests.support.waiting import HANG_SECONDS, wait_for

ORDER = msg.SetAdapter(0, "mine", "/folder")


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """Give a thread that waits for workers."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def test_an_adapter_is_loaded_in_every_worker(thread: ThreadPoolExecutor) -> None:
    bench = Bench(3)
    # A worker that does not run is told at its start.
    bench.workers.is_alive[1] = False
    bench.submit()
    end = thread.submit(bench.service.adapt, ORDER)
    wait_for(lambda: [list(each) for each in bench.workers.requests] == [[1, 2], [], [3]])
    assert bench.workers.sent[3] == msg.SetAdapter(3, "mine", "/folder")
    bench.answer(3)
    assert not end.done()
    bench.answer(2)
    took, error = end.result(HANG_SECONDS)
    assert (sorted(took), error) == ([0, 2], None)
    assert bench.service.snapshot().open == 1


@pytest.mark.parametrize("path", RESETS)
def test_a_cache_is_emptied_in_every_worker(path: str) -> None:
    bench = Bench(2)
    bench.service.submit(HttpRequest(path, b"", {":method": "POST"}), sink := Sink())
    assert [list(each) for each in bench.workers.requests] == [[1], [2]]
    for number in (1, 2):
        assert sink.ends == []
        bench.answer(number)
    assert sink.ends == ["answered"]


@pytest.mark.parametrize("refusing", [1, 2])
def test_an_adapter_that_one_worker_refuses_is_refused(
    thread: ThreadPoolExecutor, refusing: int
) -> None:
    bench = Bench(2)
    end = thread.submit(bench.service.adapt, ORDER)
    wait_for(lambda: bench.open() == [1, 2])
    for number in (1, 2):
        # It ends with the last answer: then it is known who has to undo it.
        assert not end.done()
        if number == refusing:
            refusal = failure_of(number, RequestError("has a rank too high", field="src"))
            bench.workers.listener.on_messages([refusal])
            bench.settle()
        else:
            bench.answer(number)
    took, error = end.result(HANG_SECONDS)
    assert (took, str(error)) == ([2 - refusing], "src has a rank too high")


@pytest.mark.parametrize("only", [None, [0]])
def test_without_a_worker_it_is_refused_at_once(
    thread: ThreadPoolExecutor, only: list[int] | None
) -> None:
    bench = Bench(1)
    bench.workers.is_alive[0] = False
    took, error = thread.submit(bench.service.adapt, ORDER, only).result(HANG_SECONDS)
    bench.settle()
    assert (took, str(error)) == ([], "no worker is ready")
