"""What an LMI body requests of the engine."""

from typing import Any

import pytest

from lmi_backend.clients.lmi.reading import read_lmi
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import RequestError


def requested(named: dict[str, Any], dialect: Any = "async", *, is_body: bool = True) -> Any:
    context = Context(clients=ClientSettings(dialect=dialect))
    return read_lmi("Count.", named, context, is_body=is_body).work[0]


@pytest.mark.parametrize(
    ("named", "is_body", "logprobs"),
    [
        # Tokens cost time: only an answer that shows them has them.
        ({}, True, None),
        ({}, False, None),
        ({"stream": True}, False, None),
        ({"stream": True}, True, 0),
        ({"output_formatter": "jsonlines"}, True, 0),
        ({"details": True}, True, 0),
        ({"details": True}, False, 0),
        ({"n": 2}, True, 0),
        ({"top_n_tokens": 3}, True, 3),
        ({"logprobs": 2, "top_n_tokens": 1}, True, 2),
        ({"logprobs": 1}, False, 1),
    ],
)
def test_tokens_are_requested_where_the_answer_shows_them(
    named: dict[str, Any], logprobs: int | None, *, is_body: bool
) -> None:
    assert requested(named, is_body=is_body).logprobs == logprobs


@pytest.mark.parametrize(
    ("named", "dialect", "is_greedy"),
    [
        ({}, "legacy", True),
        ({}, "async", False),
        ({"do_sample": False}, "async", True),
        ({"do_sample": True}, "legacy", False),
        ({"temperature": 0.5}, "legacy", False),
        ({"n": 2}, "legacy", False),
        ({"do_sample": False, "temperature": 0.5}, "async", True),
    ],
)
def test_who_samples_by_itself(named: dict[str, Any], dialect: str, *, is_greedy: bool) -> None:
    assert (requested(named, dialect).sampling.temperature == 0) is is_greedy


@pytest.mark.parametrize("number", [16_384, 16_385])
def test_answers_are_bounded(number: int) -> None:
    context = Context(clients=ClientSettings())
    prompts = ["a"] * number
    if number <= 16_384:
        assert len(read_lmi(prompts, {}, context, is_body=True).work) == number
    else:
        with pytest.raises(RequestError, match="16385"):
            read_lmi(prompts, {}, context, is_body=True)
