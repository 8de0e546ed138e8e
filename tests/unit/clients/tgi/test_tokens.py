"""Text Generation Inference's tokens of a text and of a chat."""

import json
from typing import Any

import msgspec
import pytest

from lmi_backend.clients.spec import Read
from lmi_backend.clients.tgi.tokens import read_chat, read_text
from lmi_backend.engine_config import Context
from lmi_backend.errors import HttpError, RequestError
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.tokenization import SPANS_PATH, Span, Spanning, Spans

MESSAGES = [{"role": "user", "content": "é"}]
ANSWER = msgspec.json.encode(Spans("<é", [Span(7, "<", 0, 1), Span(9, "é", 1, 2)]))
TOKENS = [
    {"id": 7, "text": "<", "start": 0, "stop": 1},
    {"id": 9, "text": "é", "start": 1, "stop": 2},
]


def _asked(read: Read) -> Spanning:
    assert isinstance(read.work, HttpRequest)
    assert read.work.path == SPANS_PATH
    return msgspec.json.decode(read.work.body, type=Spanning)


def test_a_text_and_a_chat_are_answered_in_its_shapes() -> None:
    text = read_text({"inputs": "<é", "parameters": {"truncate": 1}}, Context())
    chat = read_chat({"messages": MESSAGES, "model": "tgi"}, Context())
    assert _asked(text) == Spanning("<é")
    assert _asked(chat).chat == {"messages": MESSAGES, "model": "tgi"}
    halves: list[Any] = [HttpChunk(ANSWER[:9]), HttpChunk(ANSWER[9:], is_last=True)]
    assert text.form.write(halves[:1]) == b""
    assert json.loads(text.form.write(halves[1:])) == TOKENS
    whole = {"tokenize_response": TOKENS, "templated_text": "<é"}
    assert json.loads(chat.form.write(halves)) == whole
    assert not _asked(read_text({"inputs": "", "add_special_tokens": False}, Context())).special


@pytest.mark.parametrize(
    ("read", "body", "field"),
    [
        (read_text, {"inputs": ["a"]}, "inputs"),
        (read_text, {"inputs": "a", "add_special_tokens": "no"}, "add_special_tokens"),
        (read_chat, {"inputs": "a"}, "messages"),
        (read_chat, {"messages": []}, "messages"),
        (read_chat, {"messages": [{"role": "user", "content": 1 << 70}]}, "the body"),
    ],
)
def test_what_is_wrong_is_named(read: Any, body: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as raised:
        read(body, Context())
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("data", "status", "shown"),
    [(b"inputs has 9 characters", 400, 400), (b'{"inputs": "a"}', 200, 404)],
)
def test_an_engine_that_refuses_or_has_no_tokenizer_is_an_error(
    data: bytes, status: int, shown: int
) -> None:
    form = read_text({"inputs": "a"}, Context()).form
    with pytest.raises(HttpError) as raised:
        form.write([HttpChunk(data, is_last=True, status=status)])
    assert raised.value.status == shown
