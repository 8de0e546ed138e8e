"""How long the tokens of a stream wait for each other."""

import pytest

from lmi_backend.ipc.flush_policy import MAX_RESPONSES, RESPONSE_SECONDS, FlushPolicy


def test_few_streams_do_not_wait_and_none_waits_long() -> None:
    intervals = [FlushPolicy.of(2, 1).interval(streams) for streams in range(2000)]
    assert intervals[:5] == [0.0] * 5
    assert intervals == sorted(intervals)
    assert max(intervals) == 0.05
    assert all(each == 0 or each >= 0.005 for each in intervals)


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_responses_together_take_a_small_share_of_the_machine(cores: int) -> None:
    streams = 16 * cores
    a_second = streams / FlushPolicy.of(cores, 1).interval(streams)
    assert a_second * RESPONSE_SECONDS == pytest.approx(cores * 0.1)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_all_workers_of_a_large_machine_ask_half_of_their_stub(workers: int) -> None:
    streams = 128 / workers
    policy = FlushPolicy.of(96, workers)
    assert workers * streams / policy.interval(streams) == pytest.approx(MAX_RESPONSES)


def test_what_the_user_chose_holds_at_any_load() -> None:
    assert {FlushPolicy.of(2, 1, 0.2).interval(streams) for streams in (1, 1000)} == {0.2}
    assert {FlushPolicy.of(2, 1, 0.0).interval(streams) for streams in (1, 1000)} == {0.0}
