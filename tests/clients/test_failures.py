"""Answers that fail in the middle: each client's own library raises, and takes none for whole."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from tests.clients.conftest import refusal_in, run_script
from tests.support.answers.failing_streams import EVENTS, WHY
from tests.support.doubles.scripted_model import NAME, Order, Scripted

PING = b": ping\n\n"
"""A comment, which the front end sends while it waits for an answer."""
FULL = "7777"
"""Tokens of which a request is refused."""
LATE = "8888"
"""Tokens that take too long."""
CHOICE = {"index": 0, "finish_reason": None}
KNOWN: dict[str, Any] = {"id": "x", "model": NAME, "created": 1}
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": NAME, "status": "in_progress",
    "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
}  # fmt: skip
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress"}
PART = {"type": "output_text", "text": "", "annotations": []}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": NAME, "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
BEGINNINGS: dict[str, tuple[dict[str, Any], ...]] = {
    "/v1/chat/completions": tuple(
        KNOWN | {"object": "chat.completion.chunk", "choices": [CHOICE | {"delta": delta}]}
        for delta in ({"role": "assistant", "content": ""}, {"content": "The"})
    ),
    "/v1/completions": (
        KNOWN | {"object": "text_completion", "choices": [CHOICE | {"text": "The"}]},
    ),
    "/v1/responses": (
        {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
        {
            "type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
            "item": ITEM | {"content": []},
        },
        {
            "type": "response.content_part.added", "sequence_number": 2, "output_index": 0,
            "content_index": 0, "item_id": "msg_1", "part": PART,
        },
        {
            "type": "response.output_text.delta", "sequence_number": 3, "output_index": 0,
            "content_index": 0, "item_id": "msg_1", "delta": "The", "logprobs": [],
        },
    ),
    "/v1/messages": (
        {"type": "message_start", "message": MESSAGE},
        {
            "type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        {
            "type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "The"},
        },
    ),
}  # fmt: skip
"""What vLLM's server sends of each stream before it fails."""


def _event(path: str, value: dict[str, Any]) -> bytes:
    is_named = path in ("/v1/messages", "/v1/responses")
    name = f"event: {value['type']}\n".encode() if is_named else b""
    return name + b"data: " + json.dumps(value).encode() + b"\n\n" + PING


def _begin_and_fail(order: Order) -> Sequence[msg.ToClient]:
    failure = msg.Failure(order.id, "dead", WHY)
    if isinstance(order, msg.SubmitHttp) and LATE.encode() in order.request.body:
        failure = msg.Failure(order.id, "deadline", "late")
    if isinstance(order, msg.Submit):
        return [msg.Output(order.id, Delta("The", 1)), failure]
    assert isinstance(order, msg.SubmitHttp)
    if FULL.encode() in order.request.body:
        return [msg.Failure(order.id, "unavailable", "full")]
    path = order.request.path
    parts = [_event(path, value) for value in BEGINNINGS[path]]
    head = HttpChunk(parts[0], headers={"content-type": EVENTS})
    chunks = [head, *map(HttpChunk, parts[1:])]
    return [*(msg.Output(order.id, chunk) for chunk in chunks), failure]


@pytest.fixture(scope="module")
def raised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Scripted(tmp_path_factory.mktemp("server")).run() as server:
        server.models[NAME].script = _begin_and_fail
        reached = {"URL": f"http://127.0.0.1:{server.port}", "KEY": "any", "MODEL": NAME}
        yield run_script("fail_in_the_middle", **reached)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("openai_chat", "APIError"),
        ("openai_chat_helper", "APIError"),
        ("openai_completion", "APIError"),
        ("openai_responses", "APIError"),
        ("openai_responses_helper", "APIError"),
        ("anthropic_create", "APIStatusError"),
        ("anthropic_stream", "APIStatusError"),
        ("hugging_face_text", "OverloadedError"),
        ("hugging_face_chat", "UnknownError"),
        ("amazon_events", "EventStreamError"),
        ("amazon_raw_events", "EventStreamError"),
    ],
)
def test_the_library_raises_what_the_server_says(raised: Any, name: str, error: str) -> None:
    assert raised[name]["raised"] == error
    assert WHY in raised[name]["text"]


@pytest.mark.parametrize("name", ["amazon_lines", "amazon_raw"])
def test_the_library_raises_where_the_answer_has_no_end(raised: Any, name: str) -> None:
    assert raised[name]["raised"] == "ResponseStreamingError"


def test_a_full_queue_is_an_error_of_each_librarys_own_kind(raised: Any) -> None:
    kind, status, error = refusal_in(raised["anthropic_full"])
    assert (kind, status, error["error"]["type"]) == (
        "ServiceUnavailableError", 503, "overloaded_error"
    )  # fmt: skip
    kind, status, error = refusal_in(raised["openai_full"])
    assert (kind, status, error["message"]) == ("InternalServerError", 503, "full")


def test_an_answer_that_takes_too_long_is_an_error_of_anthropics_own_kind(raised: Any) -> None:
    kind, _, body = refusal_in(raised["anthropic_late"])
    error = {"type": "timeout_error", "message": "late"}
    assert (kind, body) == ("APIStatusError", {"type": "error", "error": error})
