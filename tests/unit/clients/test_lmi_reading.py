"""What an LMI body requests of the engine, and how an answer ended for LMI's older handlers."""

import json
from typing import Any

import pytest

from lmi_backend.clients.lmi_reading import LegacyChatReply, read_lmi
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import RequestError
from lmi_backend.generation import HttpChunk


def answered(*data: str) -> list[Any]:
    reply = LegacyChatReply()
    return [
        response["response"]
        for place, text in enumerate(data, start=1)
        for response in reply.responses([HttpChunk(text.encode())], is_last=place == len(data))
    ]


def choice(finish: str | None, stop: Any = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": finish, "stop_reason": stop}]}


def event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n"


@pytest.mark.parametrize(
    ("finish", "stop", "word"),
    [
        ("stop", None, "eos_token"),
        ("stop", "###", "stop_sequence"),
        ("stop", 0, "stop_sequence"),
        ("length", None, "length"),
        ("tool_calls", None, "tool_calls"),
    ],
)
def test_an_end_has_lmis_word(finish: str, stop: Any, word: str) -> None:
    (whole,) = answered(json.dumps(choice(finish, stop)))
    assert json.loads(whole)["choices"][0]["finish_reason"] == word
    (streamed,) = answered(event(choice(finish, stop)))
    assert json.loads(streamed.removeprefix("data: "))["choices"][0]["finish_reason"] == word


def test_events_that_share_a_response_stay_events() -> None:
    end = "data: [DONE]\n\n"
    (text,) = answered(event(choice(None)) + event(choice("stop")) + end)
    first, last, done, rest = text.split("\n\n")
    assert json.loads(first.removeprefix("data: ")) == choice(None)
    assert json.loads(last.removeprefix("data: ")) == choice("eos_token")
    assert (done, rest) == ("data: [DONE]", "")


def test_what_does_not_end_anything_is_handed_on_as_it_is() -> None:
    texts = [event(choice(None)), "data: [DONE]\n\n", '{"object": "list"}']
    assert answered(*texts) == [text.encode() for text in texts]


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


@pytest.mark.parametrize("number", [16_384, 16_385])
def test_answers_are_bounded(number: int) -> None:
    context = Context(clients=ClientSettings())
    prompts = ["a"] * number
    if number <= 16_384:
        assert len(read_lmi(prompts, {}, context, is_body=True).work) == number
    else:
        with pytest.raises(RequestError, match="16385"):
            read_lmi(prompts, {}, context, is_body=True)
