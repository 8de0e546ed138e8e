"""What comes at the worst moment, and what concerns every worker."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lmi_backend.clients.openai import RESETS
from lmi_backend.errors import EngineDeadError, LmiError, RequestError
from lmi_backend.generation import Chunk, Delta, GenerateRequest, HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.messages import failure_of
from lmi_backend.serving.request_state import RequestState
from lmi_backend.serving.service import Service
from tests.support.doubles.idle_workers import IdleWorkers
from tests.support.doubles.service_bench import Bench, Sink, limits_of
from tests.support.run.waiting import HANG_SECONDS, wait_for


class SlowSink(Sink):
    """A client whose first chunk takes as long as the test likes, and who may have gone."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sending, self.may_send = threading.Event(), threading.Event()
        self.times_asked = 0

    def send(self, chunks: list[Chunk], *, is_last: bool) -> None:
        self.is_sending.set()
        assert self.may_send.wait(HANG_SECONDS)
        super().send(chunks, is_last=is_last)

    def is_cancelled(self) -> bool:
        self.times_asked += self.has_gone
        return super().is_cancelled()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(IdleWorkers(), limits_of(8, 8))  # type: ignore[arg-type]
    service.start()
    yield service
    service.close()


def _that_is_sent_first(service: Service) -> SlowSink:
    """Return a client that is being sent the first chunk of request 1."""
    sink = SlowSink()
    service.submit((GenerateRequest(prompt="a"),), sink)
    service.on_messages([msg.Output(1, Delta("first", 1))])
    assert sink.is_sending.wait(HANG_SECONDS)
    return sink


def test_a_client_that_leaves_before_the_last_piece_gets_an_error(service: Service) -> None:
    sink = _that_is_sent_first(service)
    sink.has_gone = True
    wait_for(lambda: sink.times_asked > 0)
    sink.may_send.set()
    wait_for(lambda: service.snapshot().open == 0)
    assert (sink.text, sink.ends) == ("first", ["CancelledError"])


def test_a_client_that_leaves_while_the_last_piece_waits_ends_with_it(service: Service) -> None:
    sink = _that_is_sent_first(service)
    service.on_messages([msg.Output(1, Delta("last", 1, "stop"))])
    sink.has_gone = True
    # The second question comes after the answer to the first was acted on.
    wait_for(lambda: sink.times_asked > 1)
    sink.may_send.set()
    wait_for(lambda: service.snapshot().open == 0)
    assert (sink.text, sink.ends) == ("firstlast", ["answered"])


def test_the_first_reason_for_an_end_stays(service: Service) -> None:
    sink = _that_is_sent_first(service)
    for word in ("first", "later"):
        service.set_error(service.states[1], LmiError(word))
    sink.may_send.set()
    wait_for(lambda: service.snapshot().open == 0)
    assert sink.errors == ["first"]


class LateSink(Sink):
    """A client; while a piece is sent something more comes."""

    state: RequestState
    later: tuple[Delta | None, LmiError | None] = (None, None)

    def send(self, chunks: list[Any], *, is_last: bool) -> None:
        chunk, error = self.later
        if chunk is not None:
            self.state.add(chunk)
        self.state.error = error


@pytest.mark.parametrize(
    ("later", "is_sent_again"),
    [
        ((None, None), False),
        ((Delta("b", 1), None), True),
        ((None, EngineDeadError("gone")), True),
        ((Delta("b", 1), EngineDeadError("gone")), True),
    ],
)
def test_what_comes_while_a_piece_is_sent_is_sent_next(later: Any, is_sent_again: bool) -> None:
    service = Service(IdleWorkers(), limits_of(8, 8))  # type: ignore[arg-type]
    sink = LateSink()
    service.submit((GenerateRequest(prompt="a"),), sink)
    sink.state, sink.later = service.states[1], later
    service.on_messages([msg.Output(1, Delta("a", 1))])
    service.senders.step()
    assert sink.state.is_scheduled == is_sent_again


# What concerns every worker.

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
