"""What is counted and said of requests."""

import logging

import pytest

from lmi_backend.errors import EngineError
from lmi_backend.generation import Delta
from lmi_backend.serving.stats import Histogram, RequestStats
from tests.support.doubles.service_bench import Sink, state_of


def test_a_histogram_counts_up_to_its_edges() -> None:
    histogram = Histogram.of((1, 2))
    for value, times in ((0.5, 1), (1, 1), (1.5, 3), (9, 1)):
        histogram.observe(value, times)
    assert dict(histogram.buckets()) == {"1": 2, "2": 5, "+Inf": 6}
    assert (histogram.count, histogram.total) == (6, 15)


def test_tokens_of_one_response_share_its_time() -> None:
    stats, state = RequestStats(), state_of()
    state.began -= 4
    stats.sent(state, [Delta("a", 1)])
    state.sent_at -= 0.8
    stats.sent(state, [Delta("bcd", 4, "stop")])
    stats.ended(state, "stop")
    now = stats.snapshot(0, [])
    assert now.first_seconds.count == now.request_seconds.count == 1
    assert now.token_seconds.count == 4
    assert now.token_seconds.total == pytest.approx(0.8, abs=0.1)
    assert now.first_seconds.total == pytest.approx(4, abs=0.5)


def test_a_whole_answer_has_a_first_token_where_the_engine_tells() -> None:
    stats, state = RequestStats(), state_of()
    state.began -= 4
    stats.sent(state, [Delta("abcde", 5, "length", decode_seconds=3.0)])
    stats.ended(state, "length")
    now = stats.snapshot(0, [])
    assert now.first_seconds.total == pytest.approx(1, abs=0.5)
    assert (now.token_seconds.count, now.token_seconds.total) == (4, 3.0)
    assert now.request_seconds.total == pytest.approx(4, abs=0.5)


def test_an_error_has_no_first_token() -> None:
    stats, state = RequestStats(), state_of()
    stats.sent(state, [])
    stats.ended(state, "internal")
    now = stats.snapshot(0, [])
    assert (now.responses, now.first_seconds.count, now.ended) == (1, 0, {"internal": 1})


def test_the_lengths_of_what_was_answered() -> None:
    stats, whole, failed = RequestStats(), state_of(), state_of()
    stats.sent(whole, [Delta("a", 12, "stop", num_prompt_tokens=900)])
    stats.ended(whole, "stop")
    stats.sent(failed, [Delta("a", 5)])
    failed.error = EngineError("it broke")
    stats.ended(failed, "internal")
    stats.ended(state_of(), "stop")
    now = stats.snapshot(0, [])
    assert (now.prompt_lengths.count, now.prompt_lengths.total) == (1, 900)
    assert (now.answer_lengths.count, now.answer_lengths.total) == (1, 12)
    assert dict(now.answer_lengths.buckets())["20"] == 1
    assert dict(now.prompt_lengths.buckets())["500"] == 0


def test_only_failures_are_said_unless_all_are_wanted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    quiet, failed = state_of(Sink("r")), state_of(Sink("a b\n"))
    failed.error = EngineError("it broke")
    stats = RequestStats("m")
    stats.ended(quiet, "stop")
    assert not caplog.messages
    stats.ended(failed, "internal")
    (line,) = caplog.messages
    assert line.startswith('request model=m request_id="a b\\n" outcome=internal')
    assert line.endswith('error="it broke"')
    RequestStats("m", says_all=True).ended(quiet, "stop")
    assert "request_id=r outcome=stop" in caplog.messages[-1]
