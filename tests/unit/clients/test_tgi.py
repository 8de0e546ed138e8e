"""Bodies, tokens and paths of Text Generation Inference."""

import json
from typing import Any

import msgspec
import pytest

from lmi_backend.clients.spec import Read
from lmi_backend.clients.tgi import SPEC, read_chat, read_either, read_stream, read_text, read_whole
from lmi_backend.engine_config import Context
from lmi_backend.errors import HttpError, RequestError
from lmi_backend.generation import HttpChunk, HttpRequest
from lmi_backend.tokenization import SPANS_PATH, Span, Spanning, Spans


@pytest.mark.parametrize("read", [read_whole, read_stream, read_either])
@pytest.mark.parametrize(
    ("name", "wanted", "nothing"),
    [
        ("typical_p", 0.9, 1.0),
        ("watermark", True, False),
        # Of other servers.
        ("no_repeat_ngram_size", 3, 0),
        ("max_time", 0.5, None),
        ("suppress_tokens", [5], []),
        ("guidance_scale", 1.5, 1),
    ],
)
def test_what_nothing_here_serves_is_refused_where_it_asks_for_something(
    read: Any, name: str, wanted: object, nothing: object
) -> None:
    with pytest.raises(RequestError, match="accepted: ") as refusal:
        read({"inputs": "a", "parameters": {name: wanted}}, Context())
    assert refusal.value.field == name
    dropped = read({"inputs": "a", "parameters": {name: nothing}}, Context()).dropped
    assert {*dropped} <= {name}


@pytest.mark.parametrize(
    ("more", "accepted"),
    [
        ({"grammar": 1}, "parameters.grammar"),
        ({"max_new_tokens": 1}, "parameters.max_new_tokens"),
        ({"adapter_id": 1}, "parameters.adapter_id"),
        ({"messages": ["x"]}, "/v1/chat/completions"),
        ({"prompt": ["x"]}, "/v1/chat/completions"),
        ({"tools": ["x"]}, "/v1/chat/completions"),
        ({"parameters": {"maxNewTokens": 1}}, "max_new_tokens"),
        ({"parameters": {"max-new-tokens": 1}}, "max_new_tokens"),
        ({"parameters": {"MAX_NEW_TOKENS": 1}}, "max_new_tokens"),
        ({"stream": "false"}, "true or false"),
    ],
    ids=str,
)
def test_what_stands_at_another_place_or_is_spelt_otherwise_is_refused(
    more: dict[str, Any], accepted: str
) -> None:
    with pytest.raises(RequestError, match=f"accepted: {accepted}") as refusal:
        read_either({"inputs": "a"} | more, Context())
    assert refusal.value.field in {*more, *more.get("parameters", ())}


def test_what_asks_for_nothing_may_stand_anywhere() -> None:
    assert read_whole({"inputs": "a", "model": "x", "seed": None}, Context()).dropped == ()


@pytest.mark.parametrize("name", ["max_tokens", "n_predict", "max_output_tokens"])
def test_another_name_of_the_limit_is_the_limit(name: str) -> None:
    read = read_whole({"inputs": "a", "parameters": {name: 3}}, Context())
    assert read.work[0].sampling.max_tokens == 3  # type: ignore[index]


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


@pytest.mark.parametrize("path", SPEC.paths, ids=lambda path: path.template)
def test_what_generates_waits_counts_and_resumes(path: object) -> None:
    generates = path.template in ("/generate", "/generate_stream", "/")  # type: ignore[attr-defined]
    traits = [getattr(path, name) for name in ("takes_place", "counts_n", "can_resume")]
    assert traits == [generates] * 3
