"""What concerns every worker reaches each of them, and is answered once."""

import pytest

from lmi_backend.clients.openai import RESETS
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import failure_of
from tests.support.service_bench import Bench, Sink


def adapt(bench: Bench) -> Sink:
    adapt_and_note(bench, sink := Sink())
    return sink


def adapt_and_note(bench: Bench, sink: Sink, only: list[int] | None = None) -> list[int]:
    return bench.service.adapt(msg.SetAdapter(0, "mine", "/folder"), sink, only)


def test_an_adapter_is_loaded_in_every_worker_and_answered_once() -> None:
    bench = Bench(3)
    # A worker that does not run is told at its start.
    bench.workers.is_alive[1] = False
    bench.submit()
    sink = adapt(bench)
    assert [list(asked) for asked in bench.workers.requests] == [[1, 2], [], [3]]
    assert bench.workers.sent[3] == msg.SetAdapter(3, "mine", "/folder")
    bench.answer(3)
    assert sink.ends == []
    bench.answer(2)
    assert sink.ends == ["answered"]
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
def test_an_adapter_that_one_worker_refuses_is_refused(refusing: int) -> None:
    bench = Bench(2)
    took = adapt_and_note(bench, sink := Sink())
    for number in (1, 2):
        # It ends with the last answer: then it is known who has to undo it.
        assert sink.ends == []
        if number == refusing:
            refusal = failure_of(number, RequestError("has a rank too high", field="src"))
            bench.workers.listener.on_messages([refusal])
            bench.settle()
        else:
            bench.answer(number)
    assert (sink.ends, sink.errors) == (["RequestError"], ["src has a rank too high"])
    assert took == [2 - refusing]


def test_without_a_worker_it_is_refused_at_once() -> None:
    bench = Bench(1)
    bench.workers.is_alive[0] = False
    sink = adapt(bench)
    assert (sink.ends, sink.errors) == (["UnavailableError"], ["no worker is ready"])


def test_some_workers_are_told_alone_and_one_that_has_gone_does_not_take_it() -> None:
    bench = Bench(3)
    bench.workers.is_alive[2] = False
    took = adapt_and_note(bench, sink := Sink(), [1, 2])
    bench.answer(1)
    assert (took, sink.ends) == ([1], ["UnavailableError"])
