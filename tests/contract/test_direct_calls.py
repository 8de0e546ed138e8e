"""Bodies that vLLM's endpoints answer without its server, beside the same through all of it."""

import json
import re
from typing import Any

import pytest

from lmi_backend.generation import HttpRequest

CHATS = "/v1/chat/completions"
THROUGH_SERVER = {"origin": "https://pages.example"}
"""A web page's requests get the headers that the server's middleware writes."""
CHAT = {"messages": [{"role": "user", "content": "What is the capital of Italy?"}]}
TEXT = {"prompt": "The capital of France is", "max_tokens": 12}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
NAMED = {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}}
PAGE = ("access-control-allow-origin", "vary")
CHANGING = re.compile(
    r'("(?:id|request_id|item_id|created|created_at|sequence_number)"): ?("[^"]*"|\d+)'
)
# How much of it the first event has is where it was cut.
CUT = re.compile(r'("(?:content|text|arguments|delta|partial_json)"): ?"(?:[^"\\]|\\.)*"')

GENERATED = [
    (CHATS, CHAT),
    (CHATS, CHAT | {"logprobs": True, "top_logprobs": 2}),
    (CHATS, CHAT | {"n": 2}),
    (CHATS, CHAT | NAMED | {"max_tokens": 20}),
    (CHATS, CHAT | {"model": "none"}),
    (CHATS, CHAT | {"temperature": -1}),
    (CHATS, CHAT | {"max_tokens": 5000}),
    (CHATS, CHAT | {"response_format": {"type": "json_schema"}}),
    (CHATS, {"messages": "no list"}),
    (CHATS, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    ("/v1/completions", TEXT),
    ("/v1/completions", TEXT | {"prompt": ["a", "b"], "logprobs": 1}),
    ("/v1/completions", TEXT | {"echo": True, "logprobs": 1}),
    ("/v1/completions", TEXT | {"max_tokens": 1}),
    ("/v1/completions", {}),
    ("/v1/messages", CHAT | {"model": "lmi", "max_tokens": 12}),
    ("/v1/responses", {"input": "What is the capital of Italy?", "store": False}),
    ("/tokenize", {"prompt": "a b c"}),
    ("/detokenize", {"tokens": [5, 6, 7]}),
    ("/v1/embeddings", {"input": "a"}),
]
POOLED = [
    ("/v1/embeddings", {"input": "The capital of France"}),
    ("/v1/embeddings", {"input": ["a", "b c"], "encoding_format": "base64"}),
    ("/pooling", {"input": "a b", "task": "embed"}),
    ("/pooling", {"input": "a b", "task": "none"}),
    ("/v1/embeddings", {"input": []}),
    ("/v1/embeddings", {"input": "a " * 3000}),
    ("/score", {"queries": "a", "documents": ["b", "c d"]}),
]
CLASSIFIED = [
    ("/classify", {"input": "The capital of France"}),
    ("/classify", {"input": ["a", "b c"]}),
    ("/pooling", {"input": "a b", "task": "classify"}),
    ("/classify", {"input": []}),
    ("/classify", {"input": "a " * 3000}),
]


def ask(engine: Any, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any, str]:
    """Return status, headers and body, without what differs from one time to the next."""
    raw = json.dumps({"temperature": 0} | body).encode()
    given = {"x-request-id": "1"} | headers
    chunks = engine.submit(HttpRequest(path, raw, given)).wait().deltas
    text = b"".join(chunk.data for chunk in chunks).decode()
    headers = {name: value for name, value in chunks[0].headers.items() if name not in PAGE}
    headers.pop("content-length", None)  # a call's id has no fixed length
    return chunks[0].status, headers, CHANGING.sub(r"\1:0", text)


@pytest.mark.parametrize(
    ("engine", "some"),
    [
        ("vllm", {CHATS, "/v1/completions", "/v1/messages", "/v1/responses"}),
        ("pooling", {"/v1/embeddings", "/pooling", "/score"}),
        ("classes", {"/classify", "/pooling"}),
    ],
    indirect=["engine"],
)
def test_bodies_of_these_paths_pass_no_server(engine: Any, some: set[str]) -> None:
    output = "\n".join(engine.output)
    # Once for each start: other tests kill it.
    *_, paths = re.findall(r"INFO lmi_backend\S+ vLLM's code for (.*) is called without", output)
    assert some <= set(paths.split(", "))
    # What our worker warns of passes vLLM's logging too.
    assert ("VLLM_API_KEY is ignored" in output) == (CHATS in some)


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
@pytest.mark.parametrize(("path", "body"), GENERATED)
def test_an_answer_is_the_servers(engine: Any, path: str, body: dict[str, Any]) -> None:
    assert ask(engine, path, body, {}) == ask(engine, path, body, THROUGH_SERVER)


@pytest.mark.parametrize(
    ("engine", "path", "body"),
    [
        *(("pooling", *each) for each in POOLED),
        *(("classes", *each) for each in CLASSIFIED),
    ],
    indirect=["engine"],
)
def test_a_pooled_answer_is_the_servers(engine: Any, path: str, body: dict[str, Any]) -> None:
    assert ask(engine, path, body, {}) == ask(engine, path, body, THROUGH_SERVER)


@pytest.mark.parametrize("engine", ["vllm"], indirect=True)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHATS, CHAT),
        (CHATS, CHAT | NAMED | {"max_tokens": 20}),
        (CHATS, CHAT | {"logprobs": True, "stream_options": {"include_usage": True}}),
        ("/v1/completions", TEXT),
        ("/v1/messages", CHAT | {"model": "lmi", "max_tokens": 12}),
        ("/v1/responses", {"input": "What is the capital of Italy?", "store": False}),
    ],
)
def test_a_stream_is_the_servers(engine: Any, path: str, body: dict[str, Any]) -> None:
    """Its events may be cut in other places."""
    status, headers, stream = ask(engine, path, body | {"stream": True}, {})
    assert headers["content-type"].startswith("text/event-stream")
    own, other = stream, ask(engine, path, body | {"stream": True}, THROUGH_SERVER)[2]
    assert status == 200
    assert _texts(own) == _texts(other)
    assert _first_and_last(own) == _first_and_last(other)


def _texts(events: str) -> dict[str, str]:
    """Return what the events' strings add up to, by where they stand in them."""
    found: dict[str, str] = {}
    for line in re.findall(r"^data: ({.*})$", events, re.MULTILINE):
        for place, text in _strings(json.loads(line), ""):
            found[place] = found.get(place, "") + text
    wanted = ("content", "text", "arguments", "delta", "partial_json")
    return {place: text for place, text in found.items() if place.endswith(wanted)}


def _strings(value: Any, place: str) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [each for key in value for each in _strings(value[key], f"{place}.{key}")]
    if isinstance(value, list):
        return [each for item in value for each in _strings(item, place)]
    return [(place, value)] if isinstance(value, str) else []


def _first_and_last(events: str) -> tuple[str, str]:
    lines = CUT.sub(r'\1:""', events).strip().split("\n\n")
    return lines[0], lines[-1]
