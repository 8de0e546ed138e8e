"""The simulation of a server's load, and the words of the benchmark."""

import argparse

import pytest
from bench import _peer
from scale import Costs, Load, simulate

COSTS = Costs(
    worker_token=10,
    worker_request=100,
    stub_response=60,
    stub_token=1,
    stub_request=200,
    server_response=80,
    server_request=200,
)


def test_few_streams_get_each_token_alone_and_at_once() -> None:
    done = simulate(Load(streams=2, rate=50), COSTS)
    assert done.responses == pytest.approx(done.tokens, abs=2)
    assert done.delay_p99 < 1


def test_many_streams_share_responses_as_the_flush_policy_says() -> None:
    done = simulate(Load(streams=256, rate=45), COSTS)
    assert done.tokens_per_second == pytest.approx(256 * 45, rel=0.02)
    # 4,000 a second by the flush policy, at most 50 ms apart, and the ends of answers.
    assert 4000 < done.responses / done.seconds < 256 * 20 * 1.1
    # The gap, and the time in which the responses of a tick are sent one after another.
    assert 50 <= done.delay_p99 < 75


def test_a_stub_that_is_behind_merges_and_loses_nothing() -> None:
    done = simulate(Load(streams=2048, rate=45), COSTS)
    assert done.tokens_per_second == pytest.approx(2048 * 45, rel=0.02)
    assert done.busy["stub"] <= 1.05
    assert done.tokens / done.responses > 4


def test_cost_is_what_was_done() -> None:
    done = simulate(Load(streams=64, rate=40), COSTS)
    seconds = done.seconds
    server = (done.responses * 80 + done.requests * 200) / 1e6 / seconds
    assert done.busy["tritonserver"] == pytest.approx(server)


@pytest.mark.parametrize("text", ["mine", "mine=http:host:1/m", "=openai:host:1/m", "a=triton:h:1"])
def test_a_peer_in_wrong_words_is_explained(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="NAME=PROTOCOL:HOST:PORT/MODEL"):
        _peer(text)


def test_a_peer_is_named() -> None:
    name, _ = _peer("mine=openai:127.0.0.1:8000/org/model")
    assert name == "mine"
