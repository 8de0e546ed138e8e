"""Requests that nobody waits for are found and ended."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lmi_backend.errors import CancelledError, DeadlineError, LmiError
from lmi_backend.serving.cancellation import CancellationPoller
from lmi_backend.serving.request_state import RequestState
from tests.support.doubles.service_bench import state_of
from tests.support.run.waiting import HANG_SECONDS, nothing_more, wait_for


class Client:
    """A sink that only says whether its client has left."""

    def __init__(self, *, gone: bool = False, broken: bool = False) -> None:
        self.gone, self.broken, self.asked = gone, broken, 0

    def is_cancelled(self) -> bool:
        self.asked += 1
        if self.broken:
            raise RuntimeError
        return self.gone


def request(number: int, client: Client, seconds: float = 60) -> RequestState:
    return state_of(client, number, deadline=time.monotonic() + seconds)


@contextmanager
def watched(*states: RequestState) -> Iterator[dict[int, LmiError]]:
    """Watch until the block ends; yield how each request was ended."""
    ended: dict[int, LmiError] = {}

    def open_states() -> list[RequestState]:
        return [state for state in states if state.id not in ended]

    poller = CancellationPoller(
        open_states, lambda state, error: ended.setdefault(state.id, error) and None
    )
    poller.start()
    poller.wake()
    yield ended
    poller.stop()
    poller.thread.join(HANG_SECONDS)
    assert not poller.thread.is_alive()


def test_a_client_that_went_is_cancelled_and_another_is_not() -> None:
    stays = Client()
    with watched(request(1, stays), request(2, Client(gone=True))) as ended:
        wait_for(lambda: ended and stays.asked > 1)
    assert ended.keys() == {2}
    assert isinstance(ended[2], CancelledError)


def test_who_is_out_of_time_is_ended_and_not_asked() -> None:
    late = Client(gone=True)
    with watched(request(1, late, seconds=-1)) as ended:
        wait_for(lambda: ended)
    assert isinstance(ended[1], DeadlineError)
    assert "option.predict_timeout" in str(ended[1])
    assert late.asked == 0


def test_one_that_cannot_be_asked_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    with watched(request(1, Client(broken=True)), request(2, Client(gone=True))) as ended:
        wait_for(lambda: 2 in ended)
    assert ended.keys() == {2}
    assert "whether it is cancelled is not known" in caplog.text


def test_questions_come_a_few_at_a_time() -> None:
    clients = [Client() for _ in range(1000)]
    states = [request(number, client) for number, client in enumerate(clients)]
    CancellationPoller(list, lambda *_: None).look_at(states)
    # To ask all of them would take more than the share of the machine that questions have.
    assert 0 < sum(client.asked for client in clients) < len(clients)


def test_without_requests_it_sleeps() -> None:
    looked = threading.Event()

    def open_states() -> list[RequestState]:
        looked.set()
        return []

    poller = CancellationPoller(open_states, lambda state, error: None)
    poller.start()
    nothing_more(0.1, "it must not look")
    assert not looked.is_set()
    poller.wake()
    assert looked.wait(HANG_SECONDS)
    poller.stop()
    poller.thread.join(HANG_SECONDS)
    assert not poller.thread.is_alive()
