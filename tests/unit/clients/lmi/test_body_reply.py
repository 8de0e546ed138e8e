"""How a chat ended, in the words of LMI's older handlers."""

import json
from typing import Any

import pytest

from lmi_backend.clients.lmi.body_reply import LegacyChatReply
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
