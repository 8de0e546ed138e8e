"""How long the tokens of a stream wait for each other."""

import pytest

from lmi_backend.ipc.flush_policy import FlushPolicy


def test_few_streams_do_not_wait_and_none_waits_long() -> None:
    gaps = [FlushPolicy.of(2, 1).interval(streams) for streams in range(2000)]
    assert gaps[:5] == [0.0] * 5
    assert gaps == sorted(gaps)
    assert max(gaps) == 0.05
    assert all(each == 0 or each >= 0.005 for each in gaps)


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_responses_together_take_a_small_share_of_the_machine(cores: int) -> None:
    streams = 16 * cores
    a_second = streams / FlushPolicy.of(cores, 1).interval(streams)
    assert a_second * 170e-6 == pytest.approx(cores * 0.1)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_all_workers_of_a_large_machine_ask_half_of_their_stub(workers: int) -> None:
    streams = 128 / workers
    pace = FlushPolicy.of(96, workers)
    assert workers * streams / pace.interval(streams) == pytest.approx(4000)


def test_what_the_user_chose_holds_at_any_load() -> None:
    assert {FlushPolicy.of(2, 1, 0.2).interval(streams) for streams in (1, 1000)} == {0.2}
    assert {FlushPolicy.of(2, 1, 0.0).interval(streams) for streams in (1, 1000)} == {0.0}
