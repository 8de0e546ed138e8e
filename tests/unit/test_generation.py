import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi_backend.generation import Delta, is_cut_short, reports_error

DELTAS = st.builds(Delta, st.text(), st.integers(0, 9), num_prompt_tokens=st.just(3))


@given(st.lists(DELTAS, min_size=1))
def test_merged_deltas_are_as_if_they_had_come_as_one(deltas: list[Delta]) -> None:
    expected = Delta(
        "".join(delta.text for delta in deltas),
        sum(delta.num_tokens for delta in deltas),
        num_prompt_tokens=3,
    )
    first, *rest = deltas
    for delta in rest:
        first.merge(delta)
    assert first == expected


def test_the_later_delta_says_how_it_ended() -> None:
    # A total may start without a prompt.
    delta = Delta("a", 1)
    later = Delta("b", 2, "stop", "s", 3)
    delta.merge(later)
    assert delta == Delta("ab", 3, "stop", "s", 3)
    assert later == Delta("b", 2, "stop", "s", 3)


@pytest.mark.parametrize(
    ("events", "is_error"),
    [
        (b'data: {"error": {"message": "x"}}\n\ndata: [DONE]\n\n', True),
        (b'data: {"choices": []}\n\ndata: {"error":{"message":"x"}}\n\n', True),
        (b'event: error\ndata: {"type":"error"}\n\n', True),
        (b"event: response.failed\r\ndata: {}\r\n\r\n", True),
        (b"x" * 100_000 + b'\ndata: {"error":{}}\n\n', True),
        (b'data: {"error": null}\n\n', False),
        (b'data: {"choices": [{"text": "\\ndata: {\\"error\\": 1}"}]}\n\n', False),
        (b'event: message_stop\ndata: {"a": "event: error"}\n\n', False),
        (b'{"error": {"message": "x"}}', False),
    ],
)
def test_an_error_is_seen_among_events_and_not_in_their_texts(
    events: bytes, *, is_error: bool
) -> None:
    assert reports_error(events) is is_error


@pytest.mark.parametrize(
    ("answer", "is_cut"),
    [
        (b'data: {"choices":[{"finish_reason":"length"}]}\n\ndata: [DONE]\n\n', True),
        (b'{"stop_reason": "max_tokens"}', True),
        (b'{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}', True),
        (b'[{"details": {"finish_reason": "length"}}]', True),
        (b'{"finish_reason":"stop","text":"\\"finish_reason\\":\\"length\\""}', False),
        (b"data: [DONE]\n\n", False),
    ],
)
def test_an_answer_that_came_to_its_longest_is_seen_in_each_clients_words(
    answer: bytes, *, is_cut: bool
) -> None:
    assert is_cut_short(answer) is is_cut
