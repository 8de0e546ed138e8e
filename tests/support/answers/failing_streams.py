"""Answers that fail in the middle, one for each path and format, and how each then ends."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.eventstream import EventStreamBuffer

from lmi_backend.generation import Delta, HttpChunk
from lmi_backend.ipc import messages as msg
from tests.support.doubles.scripted_model import NAME, OWN, Order, Script, Scripted

EVENTS = "text/event-stream; charset=utf-8"
LINES = "application/jsonlines"
BODIES = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize",
    "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
    "/v2/embed", "/inference/v1/generate",
)  # fmt: skip
WHOLE = (
    "/v1/chat/completions/render", "/v1/completions/render", "/v1/responses/render",
    "/v1/chat/completions/derender", "/v1/completions/derender", "/tokenizer_info",
    "/v1/audio/transcriptions", "/v1/audio/translations", "/reset_prefix_cache", "/reset_mm_cache",
    "/reset_encoder_cache",
)  # fmt: skip
"""Further paths of OpenAI's format, whose answers are whole here."""
FORMS = {
    **dict.fromkeys((*BODIES, *WHOLE), "openai"),
    "/v1/messages/render": "anthropic",
    "/v1/messages": "anthropic",
    "/v1/messages/count_tokens": "anthropic",
    "/v1/responses": "openai",
    "/v1/responses/{id}": "openai",
    "/v1/responses/{id}/cancel": "openai",
    "/openapi.json": "openai",
    "/v1/models": "openai",
    "/v1/models/{model:path}": "openai",
    "/v1/load_lora_adapter": "openai",
    "/v1/unload_lora_adapter": "openai",
    "/api/state": "openai",
    "/invocations": "lmi",
    "/predictions/{model}": "lmi",
    "/models/{model}/invoke": "lmi",
    "/models/{model}/adapters": "lmi",
    "/models/{model}/adapters/{adapter}": "lmi",
    "/adapters": "lmi",
    "/adapters/{adapter}": "lmi",
    "/models": "lmi",
    "/models/{model}": "lmi",
    "/endpoints/{endpoint}/invocations": "sagemaker",
    "/endpoints/{endpoint}/invocations-response-stream": "sagemaker",
    "/generate": "tgi",
    "/generate_stream": "tgi",
    "/": "tgi",
    "/chat_tokenize": "tgi",
    "/info": "tgi",
    "/v2": "triton",
    "/v2/{rest:path}": "triton",
}
"""Format of the errors of each path that needs a client's or an operator's key."""


def error_in(form: str, data: bytes) -> str:
    parsed = json.loads(data)
    match form:
        case "openai":
            assert set(parsed["error"]) == {"message", "type", "param", "code"}
            return str(parsed["error"]["message"])
        case "anthropic":
            assert parsed["type"] == "error"
            assert set(parsed["error"]) == {"type", "message"}
            return str(parsed["error"]["message"])
        case "lmi":
            assert set(parsed) == {"code", "error"}
            return str(parsed["error"])
        case "sagemaker":
            return str(parsed["Message"])
        case "tgi":
            assert set(parsed) == {"error", "error_type"}
            return str(parsed["error"])
        case _:
            assert set(parsed) == {"error"}
            return str(parsed["error"])


LMI_STREAM = {"inputs": "a", "stream": True, "parameters": {"max_new_tokens": 9}}
RAW_STREAM = {"inputs": "a", "stream": True, "parameters": {"output_formatter": "none"}}
QUESTION = {"question": "a"}
CHAT = {"model": NAME, "messages": [{"role": "user", "content": "a"}], "stream": True}
CREATED = (
    b'event: response.created\ndata: {"type":"response.created","sequence_number":0,'
    b'"response":{"id":"resp_1","status":"in_progress","output":[]}}\n\n'
)
DELTA = b'event: response.output_text.delta\ndata: {"sequence_number":1,"delta":"a"}\n\n'


def http_parts(kind: str, *parts: bytes) -> Script:
    def script(order: Order) -> Sequence[msg.ToClient]:
        first, *others = parts
        head = HttpChunk(first, headers={"content-type": kind})
        return [msg.Output(order.id, each) for each in (head, *map(HttpChunk, others))]

    return script


def tokens(order: Order) -> Sequence[msg.ToClient]:
    return [msg.Output(order.id, Delta(text, 1)) for text in ("a", "b")]


Check = Callable[[bytes], str]
"""Returns the error that a response's body reports after its last part."""


def _events(data: bytes) -> list[tuple[str, Any]]:
    """Return the names and values of a stream's events; a comment is none."""
    found = []
    for block in data.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        name = "".join(line.removeprefix("event: ") for line in lines if line[:6] == "event:")
        text = "".join(line.partition(":")[2].strip() for line in lines if line[:5] == "data:")
        if lines:
            found.append((name, text if text == "[DONE]" else json.loads(text)))
    return found


def of_openai(data: bytes) -> str:
    *_, (_, error), (_, done) = _events(data)
    assert done == "[DONE]"
    return error_in("openai", json.dumps(error).encode())


def of_anthropic(data: bytes) -> str:
    name, error = _events(data)[-1]
    assert name == "error"
    return error_in("anthropic", json.dumps(error).encode())


def of_responses(data: bytes) -> str:
    (_, failed), (name, error) = _events(data)[-2:]
    assert (failed["type"], failed["response"]["id"]) == ("response.failed", "resp_1")
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["code"] == "server_error"
    assert (name, error["type"]) == ("error", "error")
    assert [failed["sequence_number"], error["sequence_number"]] == [2, 3]
    assert error["message"] == error["error"]["message"] == failed["response"]["error"]["message"]
    return str(error["message"])


def of_lmi_lines(data: bytes) -> str:
    parsed = json.loads(data.splitlines()[-1])
    # One of LMI's two engines has the members in an object of their own.
    inner = parsed["error"]
    error = inner if isinstance(inner, dict) else {**parsed, "message": inner}
    assert error["code"] in (424, 503)
    return str(error["message"])


def of_event_in(form: str) -> Check:
    return lambda data: error_in(form, json.dumps(_events(data)[-1][1]).encode())


def of_sagemaker(data: bytes) -> str:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    *_, last = buffer
    assert last.headers[":message-type"] == "exception"
    assert last.headers[":exception-type"] == "ModelStreamError"
    return str(json.loads(last.payload)["Message"])


@dataclass(frozen=True)
class Case:
    """A stream, and how it ends where it fails."""

    path: str
    body: Any
    script: Script
    check: Check | None
    """Reads the error; None where the format has none."""
    has_end: bool = True
    """Whether the response comes to its end."""

    @property
    def model(self) -> str:
        return OWN if self.body is QUESTION else NAME

    @property
    def is_http(self) -> bool:
        return self.script is not tokens


EVENT = b'data: {"choices":[]}\n\n'
MESSAGE = b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
AT_ENDPOINT = f"/endpoints/{NAME}/invocations"
IN_EVENTS = f"{AT_ENDPOINT}-response-stream"
CASES = {
    **{
        path: Case(path, CHAT, http_parts(EVENTS, EVENT, EVENT), of_openai)
        for path in BODIES
    },
    "messages": Case("/v1/messages", CHAT, http_parts(EVENTS, MESSAGE, MESSAGE), of_anthropic),
    "count": Case(
        "/v1/messages/count_tokens", CHAT, http_parts("application/json", b"{"), None,
        has_end=False,
    ),
    "responses": Case("/v1/responses", CHAT, http_parts(EVENTS, CREATED, DELTA), of_responses),
    "pieces": Case(
        "/v1/completions", CHAT, http_parts("application/json", b"{", b'"a":'), None, has_end=False
    ),
    "lines": Case("/invocations", LMI_STREAM, tokens, of_lmi_lines),
    "raw": Case("/invocations", RAW_STREAM, tokens, None, has_end=False),
    "chat": Case("/invocations", CHAT, http_parts(EVENTS, EVENT, EVENT), of_openai),
    "predictions": Case(f"/predictions/{NAME}", LMI_STREAM, tokens, of_lmi_lines),
    "invoke": Case(f"/models/{NAME}/invoke", LMI_STREAM, tokens, of_lmi_lines),
    "own lines": Case(
        "/invocations", QUESTION, http_parts(LINES, b'{"a":1}\n', b'{"a":'), of_lmi_lines,
        has_end=False,
    ),
    "own text": Case(
        "/invocations", QUESTION, http_parts("text/plain", b"a", b"b"), None, has_end=False
    ),
    "own type": Case(
        "/invocations", QUESTION, http_parts("audio/x", b"a", b"b"), None, has_end=False
    ),
    "own events": Case(
        "/invocations", QUESTION, http_parts(EVENTS, b"data: {}\n\n", b"data: {}"),
        of_event_in("lmi"), has_end=False,
    ),
    "sagemaker": Case(AT_ENDPOINT, LMI_STREAM, tokens, of_lmi_lines, has_end=False),
    "sagemaker's raw": Case(AT_ENDPOINT, RAW_STREAM, tokens, None, has_end=False),
    "sagemaker's events": Case(IN_EVENTS, LMI_STREAM, tokens, of_sagemaker),
    "sagemaker's raw events": Case(IN_EVENTS, RAW_STREAM, tokens, of_sagemaker),
    "sagemaker's own": Case(IN_EVENTS, QUESTION, http_parts("audio/x", b"a", b"b"), of_sagemaker),
    "tgi": Case("/generate_stream", LMI_STREAM, tokens, of_event_in("tgi")),
    "tgi's other": Case("/", LMI_STREAM, tokens, of_event_in("tgi")),
}  # fmt: skip


WHY = "it broke in the middle"


def dies(_: Order) -> list[msg.ToClient | None]:
    """End with the model's process."""
    return [None]


def fails(order: Order) -> list[msg.ToClient | None]:
    return [msg.Failure(order.id, "engine", WHY)]


def answers_an_error(order: Order) -> list[msg.ToClient | None]:
    """End with what the code of a user, or an engine's server, answers an error with."""
    body = json.dumps({"error": WHY, "code": 424}).encode()
    return [msg.Output(order.id, HttpChunk(body, is_last=True, status=424))]


def paths_of(server: Scripted) -> Iterator[tuple[str, str, set[str]]]:
    """Yield each path with a request's path, and its methods; probes and the page need no key."""
    for row, service in server.front_end.make_routes():
        if service.needs_key:
            shown = re.sub(r"\{rest:path\}", "models/echo/generate", row.path)
            shown = re.sub(r"\{\w+(:path)?\}", NAME, shown)
            yield row.path, shown, set(row.methods or ()) - {"HEAD"}


def form_of(path: str) -> str:
    return FORMS.get(path) or FORMS[path.replace(NAME, "{endpoint}")]
