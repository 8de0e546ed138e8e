"""A client that leaves, or more that comes, at the worst moment."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.errors import EngineDeadError, LmiError
from lmi_backend.generation import Chunk, Delta, GenerateRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.serving.request_state import RequestState
from lmi_backend.serving.service import Service
from tests.support.idle_workers import IdleWorkers
from tests.support.service_bench import Sink, limits_of
from tests.support.waiting import HANG_SECONDS, wait_for


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
        service._set_error(service.states[1], LmiError(word))
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
