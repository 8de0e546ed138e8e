"""Signals as a user sends them: never lost, and counted one by one."""

import os
import signal
from collections.abc import Iterator

import pytest

from lmi_backend.supervisor.stop import StopSignals
from tests.support.run.waiting import HANG_SECONDS

ALL = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ALL}
    # As in a terminal, however the tests were started.
    for number in ALL:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("first", ALL)
@pytest.mark.parametrize("second", ALL)
def test_a_second_signal_right_behind_the_first_is_urgent(first: int, second: int) -> None:
    stop = StopSignals()
    with stop.listening():
        assert not stop.wait(0)
        _send(first)
        assert stop.wait(HANG_SECONDS)
        assert not stop.is_urgent
        _send(second)
        assert stop.is_urgent
        # Whatever was asked before.
        assert stop.is_requested


def test_a_hangup_may_be_about_the_log() -> None:
    stop = StopSignals(on_hangup=False)
    with stop.listening(), stop.interrupting():
        _send(signal.SIGHUP)
        _send(signal.SIGHUP)
        assert not stop.wait(0)
        with pytest.raises(KeyboardInterrupt):
            _send(signal.SIGTERM)
        assert stop.is_requested


def test_two_that_nobody_has_looked_at_are_two() -> None:
    stop = StopSignals()
    with stop.listening():
        _send(signal.SIGTERM)
        _send(signal.SIGTERM)
        assert stop.is_urgent


def test_it_counts_before_it_is_looked_at_and_gives_the_handlers_back() -> None:
    stop = StopSignals()
    with stop.listening():
        _send(signal.SIGTERM)
    assert stop.is_requested
    assert [signal.getsignal(number) for number in ALL] == [signal.SIG_DFL] * 4


def test_what_nohup_has_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = StopSignals()
    with stop.listening():
        _send(signal.SIGHUP)
        assert not stop.is_requested


@pytest.mark.parametrize("ignored", [signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_others_stop_even_where_a_shell_had_them_ignored(ignored: int) -> None:
    signal.signal(ignored, signal.SIG_IGN)
    stop = StopSignals()
    with stop.listening():
        _send(ignored)
        assert stop.is_requested


def test_a_plan_is_interrupted_and_what_serves_is_not() -> None:
    stop = StopSignals()
    with stop.listening():
        with pytest.raises(KeyboardInterrupt), stop.interrupting():
            _send(signal.SIGTERM)
        assert stop.is_requested
        _send(signal.SIGTERM)
        assert stop.is_urgent
