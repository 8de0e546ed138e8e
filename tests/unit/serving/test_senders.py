"""The threads that send answers."""

import threading
from typing import Any

import pytest

from lmi_backend.errors import EngineDeadError, LmiError
from lmi_backend.generation import Delta
from lmi_backend.serving.request_state import RequestState
from lmi_backend.serving.senders import Senders
from tests.support.service_bench import Sink


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
    sink = LateSink()
    state = sink.state = RequestState(1, sink, deadline=9e9, width=1, n=1)  # type: ignore[arg-type]
    sink.later = later
    senders = Senders(threading.Lock(), lambda *_: None, lambda _: None)
    state.add(Delta("a", 1))
    state.is_scheduled = True
    senders._send(state)
    assert state.is_scheduled == is_sent_again
