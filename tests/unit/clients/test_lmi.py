"""What an LMI body requests of the engine, and how the answers of LMI's path are written."""

import json
from typing import Any

import pytest

from lmi_backend.clients.lmi import INVOCATIONS, LegacyChatForm, form_of, read_lmi
from lmi_backend.clients.request import read_http_body
from lmi_backend.engine_config import ClientSettings, Context
from lmi_backend.errors import EngineError, RequestError
from lmi_backend.generation import HttpChunk, HttpRequest

CHAT = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
EVENTS = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def written(data: list[bytes], content_type: str, status: int = 200) -> bytes:
    form = LegacyChatForm()
    headers = {"content-type": content_type}
    last = len(data) - 1
    return b"".join(
        form.write([HttpChunk(part, is_last=place == last, status=status, headers=headers)])
        for place, part in enumerate(data)
    )


@pytest.mark.parametrize("dialect", ["legacy", "async"])
@pytest.mark.parametrize("path", [INVOCATIONS, "/v1/chat/completions"])
def test_streams_of_lmis_path_may_be_lines(dialect: Any, path: str) -> None:
    context = Context(ClientSettings(dialect=dialect, openai_lines=True))
    data = EVENTS + b"data: " + b'{"error":{"message":"gone"}}\n\n' + END
    for cut in range(1, len(data)):
        parsed = read_http_body(CHAT, path, {}, context)
        assert isinstance(parsed.work, HttpRequest)
        form = form_of(parsed.work, parsed.reply)
        headers = {"content-type": "text/event-stream; charset=utf-8"}
        pieces = ((data[:cut], False), (data[cut:], True))
        chunks = [HttpChunk(each, is_last=last, headers=headers) for each, last in pieces]
        written_lines = b"".join(form.write([chunk]) for chunk in chunks)
        assert form.is_over
        if path != INVOCATIONS:
            assert form.headers["content-type"] == headers["content-type"]
            return
        assert form.headers == {"content-type": "application/jsonlines"}
        lines = [json.loads(line) for line in written_lines.splitlines()]
        assert [list(line) for line in lines] == [["choices"], ["error"], ["choices"]]
    ending = form.failure(EngineError("gone"))
    assert (json.loads(ending.data)["error"]["code"], ending.is_end) == (500, True)


def test_a_stream_that_comes_in_any_pieces_is_the_same() -> None:
    data = EVENTS + END
    expected = data.replace(b'"stop"', b'"eos_token"')
    for cut in range(1, len(data)):
        # What is translated is written anew, with blanks.
        pieces = written([data[:cut], data[cut:]], "text/event-stream")
        assert pieces.replace(b" ", b"") == expected.replace(b" ", b"")


def test_an_answer_that_comes_in_pieces_is_translated_too() -> None:
    body = b'{"choices":[{"finish_reason":"stop","stop_reason":"x"}]}'
    answer = json.loads(written([body[:20], body[20:], b""], "application/json"))
    assert answer["choices"][0]["finish_reason"] == "stop_sequence"


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
