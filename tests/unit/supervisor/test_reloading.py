import time

import pytest

from lmi_backend.supervisor.reloading import Backoff


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of a machine that has just started, as its one element."""
    now = [1.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_pauses_grow_to_a_minute(clock: list[float]) -> None:
    backoff = Backoff()
    assert [backoff.pause() for _ in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_ten_good_minutes_are_forgotten_as_failures(clock: list[float]) -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.pause()
    clock[0] += 599
    assert backoff.pause() == 16
    clock[0] += 601
    assert [backoff.pause(), backoff.pause()] == [0, 1]


def test_a_crash_a_minute_costs_a_minute_nothing(clock: list[float]) -> None:
    """A pause after a crash that one request causes keeps everybody else out."""
    backoff = Backoff()
    for _ in range(8):
        clock[0] += 60
        assert backoff.pause(well_seconds=10) == 0


def test_what_served_at_all_pauses_for_five_seconds_at_most(clock: list[float]) -> None:
    backoff = Backoff()
    assert [backoff.pause(0.1) for _ in range(6)] == [0, 1, 2, 4, 5, 5]
    # What does not come up any more is another matter.
    assert backoff.pause() == 32
