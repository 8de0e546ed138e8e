"""What concerns every worker reaches each of them, and is answered once."""

import pytest

from lmi_backend.errors import RequestError, UnavailableError
from lmi_backend.ipc import messages as msg
from lmi_backend.ipc.failures import failure_of
from tests.support.service_bench import Bench, Sink


def adapt(bench: Bench) -> Sink:
    bench.service.adapt("mine", "/folder", sink := Sink(), preload=True, pin=False)
    return sink


def test_an_adapter_is_loaded_in_every_worker_and_answered_once() -> None:
    bench = Bench(3)
    # A worker that does not run is told at its start.
    bench.workers.is_alive[1] = False
    bench.submit()
    sink = adapt(bench)
    assert [list(asked) for asked in bench.workers.requests] == [[1, 2], [], [3]]
    assert bench.workers.sent[3] == msg.SetAdapter(3, "mine", "/folder", preload=True, pin=False)
    bench.answer(3)
    assert sink.ends == []
    bench.answer(2)
    assert sink.ends == ["answered"]
    assert bench.service.snapshot().open == 1


@pytest.mark.parametrize("refusing", [1, 2])
def test_an_adapter_that_one_worker_refuses_is_refused(refusing: int) -> None:
    bench = Bench(2)
    sink = adapt(bench)
    for number in (1, 2):
        if number == refusing:
            refusal = failure_of(number, RequestError("has a rank too high", field="src"))
            bench.workers.listener.on_messages([refusal])
            bench.settle()
        else:
            bench.answer(number)
    assert (sink.ends, sink.errors) == (["RequestError"], ["src has a rank too high"])


def test_without_a_worker_it_is_refused_at_once() -> None:
    bench = Bench(1)
    bench.workers.is_alive[0] = False
    with pytest.raises(UnavailableError, match="no worker is ready"):
        adapt(bench)
