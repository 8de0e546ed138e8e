"""What a token and a request cost, from two mixes of them."""

import pytest
from scale import PARTS, event_and_request, main


def test_a_request_and_its_events_are_told_apart() -> None:
    event, request = 30.0, 900.0
    of_long, of_short = (event + request / tokens for tokens in (240, 8))
    assert event_and_request(of_long, of_short, 240, 8) == pytest.approx((event, request))


def test_no_cost_is_below_nothing() -> None:
    assert event_and_request(30.0, 29.0, 240, 8) == (30.0, 0.0)


def test_its_words_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "{" + ",".join(PARTS) + "}" in capsys.readouterr().out
