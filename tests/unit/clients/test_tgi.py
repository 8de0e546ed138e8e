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
    ("name", "asked", "nothing"),
    [
        ("typical_p", 0.9, 1.0),
        ("watermark", True, False),
    ],
)
def test_what_its_server_serves_and_nothing_here_does_is_refused(
    read: object, name: str, asked: object, nothing: object
) -> None:
    with pytest.raises(RequestError) as refusal:
        read({"inputs": "a", "parameters": {name: asked}}, Context())  # type: ignore[operator]
    assert refusal.value.field == name
    assert read({"inputs": "a", "parameters": {name: nothing}}, Context()).dropped == ()  # type: ignore[operator]


@pytest.mark.parametrize("read", [read_whole, read_stream, read_either])
@pytest.mark.parametrize(
    ("name", "asked", "nothing"),
    [
        ("no_repeat_ngram_size", 3, 0),
        ("max_time", 0.5, None),
        ("suppress_tokens", [5], []),
        ("guidance_scale", 1.5, 1),
    ],
)
def test_what_other_servers_serve_is_refused_too(
    read: object, name: str, asked: object, nothing: object
) -> None:
    with pytest.raises(RequestError) as refusal:
        read({"inputs": "a", "parameters": {name: asked}}, Context())  # type: ignore[operator]
    assert (refusal.value.field, "accepted: " in str(refusal.value)) == (name, True)
    read({"inputs": "a", "parameters": {name: nothing}}, Context())  # type: ignore[operator]


@pytest.mark.parametrize("name", ["grammar", "max_new_tokens", "adapter_id", "seed"])
def test_a_parameter_outside_of_the_parameters_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match=f"accepted: parameters.{name}") as refusal:
        read_whole({"inputs": "a", name: 1}, Context())
    assert refusal.value.field == name
    assert read_whole({"inputs": "a", "model": "x", name: None}, Context()).dropped == ()


@pytest.mark.parametrize("name", ["max_tokens", "n_predict", "max_output_tokens"])
def test_another_name_of_the_limit_is_the_limit(name: str) -> None:
    read = read_whole({"inputs": "a", "parameters": {name: 3}}, Context())
    assert read.work[0].sampling.max_tokens == 3  # type: ignore[index]


@pytest.mark.parametrize("name", ["messages", "prompt", "tools", "tool_choice"])
def test_a_member_of_another_body_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="accepted: /v1/chat/completions") as refusal:
        read_whole({"inputs": "a", name: ["x"]}, Context())
    assert refusal.value.field == name


def test_a_stream_is_wanted_or_not() -> None:
    with pytest.raises(RequestError, match="is not true or false"):
        read_either({"inputs": "a", "stream": "false"}, Context())


@pytest.mark.parametrize("name", ["maxNewTokens", "max-new-tokens", "MAX_NEW_TOKENS"])
def test_another_spelling_of_a_parameter_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="accepted: max_new_tokens") as refusal:
        read_whole({"inputs": "a", "parameters": {name: 1}}, Context())
    assert refusal.value.field == name


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
