"""How long the tokens of a stream wait for each other."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.errors import CancelledError
from lmi_backend.generation import Delta
from lmi_backend.serving.pace import Pacer, gap
from lmi_backend.serving.session import Session


def test_few_streams_do_not_wait_and_none_waits_long() -> None:
    gaps = [gap(streams, cores=2) for streams in range(2000)]
    assert gaps[:5] == [0.0] * 5
    assert gaps == sorted(gaps)
    assert max(gaps) == 0.05
    assert all(each == 0 or each >= 0.005 for each in gaps)


@pytest.mark.parametrize("cores", [2, 16, 64])
def test_responses_together_take_a_small_share_of_the_machine(cores: int) -> None:
    streams = 16 * cores
    a_second = streams / gap(streams, cores)
    assert a_second * 310e-6 == pytest.approx(cores * 0.15)


def _session(*, is_costly: bool = True, **set_to: Any) -> Session:
    sink: Any = SimpleNamespace(is_costly=is_costly)
    session = Session(1, sink, deadline=0.0, width=1, n=1)
    for name, value in set_to.items():
        setattr(session, name, value)
    return session


def test_the_first_response_and_the_end_never_wait() -> None:
    pacer = Pacer(lambda _: None)
    now = time.monotonic()
    assert pacer.due(_session(), 1000) == 0
    assert pacer.due(_session(sent_at=now), 1000) > now
    assert pacer.due(_session(sent_at=now, error=CancelledError("x")), 1000) == 0
    # A guest of the door paces its own responses.
    assert pacer.due(_session(sent_at=now, is_costly=False), 1000) == 0
    ended = _session(sent_at=now)
    ended.add(Delta(finish_reason="stop"))
    assert pacer.due(ended, 1000) == 0


def test_sessions_are_released_in_the_order_they_are_due() -> None:
    released: list[Session] = []
    both = threading.Event()

    def release(session: Session) -> None:
        released.append(session)
        if len(released) == 2:
            both.set()

    pacer = Pacer(release)
    pacer.start()
    later, sooner = _session(), _session()
    now = time.monotonic()
    pacer.hold(later, now + 0.05)
    pacer.hold(sooner, now + 0.01)
    assert both.wait(10)
    assert released == [sooner, later]
    pacer.stop()
    pacer.join(10)
    assert not pacer.is_alive()
