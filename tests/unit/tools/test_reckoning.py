"""The arithmetic of a fleet."""

from dataclasses import fields

import pytest
from reckoning import WHY, Assumptions, Costs, reckon

COSTS = Costs(
    event_us={"front end": 20.0, "router": 10.0},
    request_us={"front end": 500.0, "router": 0.0},
    scrape_us=400.0,
    scrape_bytes=10_000,
    start_seconds=5.0,
)
ASSUMED = Assumptions(
    streams=10_001,
    streams_a_server=100,
    tokens_a_second=40.0,
    most_events_a_second=20.0,
    answer_seconds=10.0,
    busy=0.5,
    pickers=2,
    scrapes_a_second=20.0,
    renewed_share=0.1,
    longest_answer_seconds=60.0,
    load_seconds=35.0,
)


def test_what_a_fleet_needs() -> None:
    found = reckon(COSTS, ASSUMED)
    # One stream too many for a hundred servers.
    assert found.servers == 101
    assert found.events_a_second == 10_001 * 20
    assert found.requests_a_second == pytest.approx(1000.1)
    # 200,020 events of 20 us and 1,000.1 requests of 500 us, on cores half of which are given.
    assert found.cores["front end"] == pytest.approx((200_020 * 20 + 1000.1 * 500) / 1e6 / 0.5)
    assert found.cores["router"] == pytest.approx(200_020 * 10 / 1e6 / 0.5)
    assert found.front_ends_a_server == 1
    assert found.scrapes_a_second == 101 * 40
    assert found.scrape_bytes_a_second == 101 * 40 * 10_000
    assert found.scrape_share == pytest.approx(40 * 400e-6)
    assert found.update_rounds == 10
    assert found.update_seconds == pytest.approx(10 * (60 + 5 + 35))
    assert found.update_server_hours == pytest.approx(101 * 100 / 3600)


def test_a_slow_engine_sends_no_more_events_than_it_has_tokens() -> None:
    slow = Assumptions(streams=1000, tokens_a_second=2.0)
    assert reckon(COSTS, slow).events_a_second == 2000


def test_a_front_end_that_is_too_busy_is_several() -> None:
    crowded = Assumptions(streams=10_000, streams_a_server=10_000, busy=0.5)
    # 200,000 events of 20 us are 4 cores, and its requests a third: at half a core each.
    assert reckon(COSTS, crowded).front_ends_a_server == 9


def test_each_assumption_says_why() -> None:
    assert list(WHY) == [each.name for each in fields(Assumptions)]
