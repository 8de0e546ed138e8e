"""An answer that fails looks failed: on every path, in the format that the path's clients read.

The table of routes is walked: a new path is named here with its format, or the tests fail.
"""

import http.client
import json
import logging
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lmi_backend.frontend import models
from lmi_backend.frontend.openai import TARGET
from lmi_backend.generation import Delta, HttpChunk, openai_error
from lmi_backend.ipc import messages as msg
from tests.support.event_stream import events_of
from tests.support.scripted_model import NAME, OWN, Order, Script, Scripted
from tests.support.waiting import wait_for

EVENTS = "text/event-stream; charset=utf-8"
LINES = "application/jsonlines"
BODIES = (
    "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize",
    "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
)  # fmt: skip
FORMS = {
    **dict.fromkeys(BODIES, "openai"),
    "/v1/messages": "anthropic",
    "/v1/messages/count_tokens": "anthropic",
    "/v1/responses": "openai",
    "/v1/responses/{id}": "openai",
    "/v1/responses/{id}/cancel": "openai",
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
    "/info": "tgi",
    "/v2": "triton",
    "/v2/{rest:path}": "triton",
}
"""Format of the errors of each path that needs a client's or an operator's key."""


def error_in(form: str, data: bytes) -> str:
    """Return what an error's body says, in one of the formats."""
    said = json.loads(data)
    match form:
        case "openai":
            assert set(said["error"]) == {"message", "type", "param", "code"}
            return str(said["error"]["message"])
        case "anthropic":
            assert said["type"] == "error"
            assert set(said["error"]) == {"type", "message"}
            return str(said["error"]["message"])
        case "lmi":
            assert set(said) == {"code", "error"}
            return str(said["error"])
        case "sagemaker":
            return str(said["Message"])
        case "tgi":
            assert set(said) == {"error", "error_type"}
            return str(said["error"])
        case _:
            assert set(said) == {"error"}
            return str(said["error"])


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with (
        pytest.MonkeyPatch.context() as patch,
        Scripted(tmp_path_factory.mktemp("server"), max_body=1 << 16).run() as server,
    ):
        # A model that has died is found again sooner.
        patch.setattr(models, "_LOOK_SECONDS", 0.01)
        yield server


@pytest.fixture(scope="module")
def with_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with Scripted(tmp_path_factory.mktemp("server"), api_key="a-key").run() as server:
        yield server


Answered = tuple[int, dict[str, str], bytes, bool]


def ask(server: Scripted, method: str, path: str, body: bytes = b"", **headers: str) -> Answered:
    """Return status, headers, body and whether the response came to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        try:
            return response.status, named, response.read(), True
        except http.client.IncompleteRead as error:
            return response.status, named, error.partial, False
    finally:
        connection.close()


def paths_of(server: Scripted) -> Iterator[tuple[str, str, set[str]]]:
    """Yield each path with a request's path, and its methods; probes and the page need no key."""
    for row, service in server.front_end._make_routes():
        if service.who != "anybody":
            shown = re.sub(r"\{rest:path\}", "models/echo/generate", row.path)
            shown = re.sub(r"\{\w+(:path)?\}", NAME, shown)
            yield row.path, shown, set(row.methods or ()) - {"HEAD"}


def test_every_path_says_in_its_own_format_that_a_key_is_missing(with_key: Scripted) -> None:
    for row, path, methods in paths_of(with_key):
        for method in methods:
            status, headers, data, _ = ask(with_key, method, path)
            assert status in (401, 403), path
            assert error_in(FORMS[row], data), path
            assert ("x-amzn-errortype" in headers) == (FORMS[row] == "sagemaker")


def test_every_path_says_in_its_own_format_that_a_method_is_not_served(scripted: Scripted) -> None:
    for row, path, _ in paths_of(scripted):
        status, headers, data, _ = ask(scripted, "PATCH", path)
        assert status in (400, 405), path
        assert "PATCH is not served here" in error_in(FORMS[row], data)
        assert headers["allow"]


@pytest.mark.parametrize(
    ("path", "form"),
    [("/v1/messages/batches", "anthropic"), ("/v1/chats", "openai"), ("/nothing", "openai")],
)
def test_a_path_that_is_not_served_is_said_in_the_format_of_those_beside_it(
    scripted: Scripted, path: str, form: str
) -> None:
    status, _, data, _ = ask(scripted, "POST", path)
    assert status == 404
    assert error_in(form, data)


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
    """Answer with parts of a type."""

    def script(order: Order) -> Sequence[msg.ToClient]:
        first, *others = parts
        head = HttpChunk(first, headers={"content-type": kind})
        return [msg.HttpOutput(order.id, each) for each in (head, *map(HttpChunk, others))]

    return script


def tokens(order: Order) -> Sequence[msg.ToClient]:
    """Answer with two tokens."""
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
    said = json.loads(data.splitlines()[-1])
    # One of LMI's two engines has the members in an object of their own.
    inner = said["error"]
    error = inner if isinstance(inner, dict) else {**said, "message": inner}
    assert error["code"] in (424, 503)
    return str(error["message"])


def of_event_in(form: str) -> Check:
    return lambda data: error_in(form, json.dumps(_events(data)[-1][1]).encode())


def of_sagemaker(data: bytes) -> str:
    headers, payload = events_of(data)[-1]
    assert headers[":message-type"] == "exception"
    assert headers[":exception-type"] == "ModelStreamError"
    return str(json.loads(payload)["Message"])


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
TRITON = f"/v2/models/{NAME}/generate_stream"
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
    "triton": Case(
        TRITON, {"text_input": "a", "stream": True, "max_tokens": 9}, tokens, of_event_in("triton")
    ),
}  # fmt: skip
NEVER_STREAMED = {
    "/v1/responses/{id}", "/v1/responses/{id}/cancel", "/v1/models", "/v1/models/{model:path}",
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/api/state", "/models/{model}/adapters",
    "/models/{model}/adapters/{adapter}", "/adapters", "/adapters/{adapter}", "/models",
    "/models/{model}", "/generate", "/info", "/v2",
}  # fmt: skip
"""Paths whose answers are whole, or that have the code of a path above."""


def test_every_path_of_the_front_end_is_known_here(scripted: Scripted) -> None:
    paths = [path for path, _, _ in paths_of(scripted)]
    assert set(paths) == set(FORMS)
    tried = {case.path for case in CASES.values()}
    left = {row for row, path, _ in paths_of(scripted) if path not in tried}
    assert left - {"/v2/{rest:path}"} == NEVER_STREAMED


WHY = "it broke in the middle"


def _dies(order: Order) -> list[msg.ToClient | None]:
    return [None]


def _fails(order: Order) -> list[msg.ToClient | None]:
    return [msg.Failure(order.id, "engine", WHY)]


def _answers_an_error(order: Order) -> list[msg.ToClient | None]:
    body = json.dumps({"error": WHY, "code": 424}).encode()
    return [msg.HttpOutput(order.id, HttpChunk(body, is_last=True, status=424))]


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of the access log."""
    return [text for text in caplog.messages if " outcome=" in text]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("end", [_dies, _fails, _answers_an_error])
def test_a_stream_that_fails_looks_failed(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, name: str, end: Any
) -> None:
    case = CASES[name]
    if end is _answers_an_error and not case.is_http:
        end = _fails
    scripted.wait()
    scripted.models[case.model].script = lambda order: [*case.script(order), *end(order)]
    with caplog.at_level(logging.INFO):
        status, _, data, has_end = ask(
            scripted, "POST", case.path, json.dumps(case.body).encode(), **{TARGET: case.model}
        )
        wait_for(lambda: bool(_lines(caplog)))
    assert (status, has_end) == (200, case.has_end)
    if case.check is not None:
        assert case.check(data)
        assert end is _dies or WHY in case.check(data)
    (line,) = _lines(caplog)
    assert re.search(r" status=200 outcome=failed error=[A-Z]\w+ ms=", line), line


BEFORE = {
    **dict.fromkeys((*BODIES, "/v1/messages", "/v1/messages/count_tokens"), CHAT),
    "/v1/responses": CHAT,
    **dict.fromkeys(("/invocations", "/predictions/{model}", AT_ENDPOINT), LMI_STREAM),
    **dict.fromkeys(("/models/{model}/invoke", IN_EVENTS, "/generate", "/"), LMI_STREAM),
    "/generate_stream": LMI_STREAM,
}
"""Body of a request of each path whose answer comes from a model."""


def _form_of(path: str) -> str:
    return FORMS.get(path) or FORMS[path.replace(NAME, "{endpoint}")]


@pytest.mark.parametrize("path", BEFORE)
def test_what_is_refused_before_the_answer_is_said_in_the_format_of_the_path(
    scripted: Scripted, path: str
) -> None:
    scripted.wait()
    form, asked = _form_of(path), path.replace("{model}", NAME)
    body = json.dumps(BEFORE[path]).encode()
    full = "8 requests run and 8 wait"
    scripted.models[NAME].script = lambda order: [msg.Failure(order.id, "unavailable", full)]
    status, headers, data, has_end = ask(scripted, "POST", asked, body, **{TARGET: NAME})
    assert (status, has_end, headers["retry-after"]) == (503, True, "1")
    assert error_in(form, data) == full
    status, _, data, _ = ask(scripted, "POST", asked, b"{", **{TARGET: NAME})
    assert status in (400, 422, 424)
    assert error_in(form, data)
    status, _, data, _ = ask(scripted, "POST", asked, b" " * (1 << 17), **{TARGET: NAME})
    assert status in (400, 413)
    assert "the body is larger than" in error_in(form, data)


def test_a_drained_server_refuses_each_path_in_its_own_format(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Scripted(tmp_path_factory.mktemp("server")).run() as server:
        server.front_end.drain()
        for row, path, methods in paths_of(server):
            status, _, data, _ = ask(server, min(methods), path)
            assert status == 503, path
            assert "stop" in error_in(FORMS[row], data)


def test_an_engines_own_error_has_anthropics_format_for_anthropics_clients(
    scripted: Scripted,
) -> None:
    """Of vLLM's server some have OpenAI's, and so have those of other engines."""
    scripted.wait()
    scripted.models[NAME].script = lambda order: [
        msg.HttpOutput(order.id, openai_error(404, "served by vLLM only"))
    ]
    status, _, data, _ = ask(scripted, "POST", "/v1/messages", json.dumps(CHAT).encode())
    assert (status, json.loads(data)) == (
        404,
        {"type": "error", "error": {"type": "not_found_error", "message": "served by vLLM only"}},
    )


@pytest.mark.parametrize("name", ["/v1/chat/completions", "lines", "own text", "tgi", "messages"])
def test_a_client_of_http_1_0_gets_the_error_and_nothing_of_the_answer(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """It knows no chunks: the answer is held until it is whole, so that its status can change."""
    case = CASES[name]
    scripted.wait()
    scripted.models[case.model].script = lambda order: [*case.script(order), *_fails(order)]
    body = json.dumps(case.body).encode()
    head = f"POST {case.path} HTTP/1.0\r\nhost: a\r\n{TARGET}: {case.model}\r\n"
    with caplog.at_level(logging.INFO):
        with socket.create_connection(("127.0.0.1", scripted.port), timeout=20) as connection:
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            status, _, rest = connection.makefile("rb").read().partition(b"\r\n")
        wait_for(lambda: bool(_lines(caplog)))
    assert int(status.split()[1]) in (424, 500)
    assert WHY in error_in(_form_of(case.path), rest.partition(b"\r\n\r\n")[2])
    assert " outcome=failed error=EngineError " in _lines(caplog)[0]


ENGINES_OWN = (
    ("/v1/chat/completions", b'data: {"error":{"message":"x"}}\n\ndata: [DONE]\n\n'),
    ("/v1/completions", b'data: {"choices":[]}\n\ndata: {"error": {"message":"x"}}\n\n'),
    ("/v1/messages", b'event: error\ndata: {"type":"error"}\n\n'),
    ("/v1/responses", b'event: response.failed\ndata: {"type":"response.failed"}\n\n'),
    (IN_EVENTS, b'data: {"error":{"message":"x"}}\n\ndata: [DONE]\n\n'),
)


@pytest.mark.parametrize(
    ("path", "last", "outcome"),
    [
        *((path, last, "failed error=EngineError") for path, last in ENGINES_OWN),
        ("/v1/chat/completions", b'data: {"error":null}\n\ndata: [DONE]\n\n', "whole error=-"),
        (
            "/v1/messages",
            b'event: message_stop\ndata: {"text":"event: error"}\n\n',
            "whole error=-",
        ),
    ],
)
def test_the_log_knows_the_errors_that_an_engine_reports_in_its_own_events(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, path: str, last: bytes, outcome: str
) -> None:
    scripted.wait()

    def script(order: Order) -> Sequence[msg.ToClient]:
        *before, end = http_parts(EVENTS, EVENT, EVENT, last)(order)
        assert isinstance(end, msg.HttpOutput)
        return [*before, msg.HttpOutput(order.id, HttpChunk(end.chunk.data, is_last=True))]

    scripted.models[NAME].script = script
    with caplog.at_level(logging.INFO):
        status, _, data, has_end = ask(scripted, "POST", path, json.dumps(CHAT).encode())
        wait_for(lambda: bool(_lines(caplog)))
    assert (status, has_end) == (200, True)
    assert last in data or path == IN_EVENTS
    assert f" status=200 outcome={outcome} ms=" in _lines(caplog)[0]


def test_the_log_tells_a_client_that_left_from_an_answer_that_failed(
    scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.wait()
    scripted.models[NAME].script = http_parts(EVENTS, EVENT, EVENT)
    connection = http.client.HTTPConnection("127.0.0.1", scripted.port, timeout=20)
    connection.request("POST", "/v1/completions", json.dumps(CHAT).encode())
    with caplog.at_level(logging.INFO):
        with connection.getresponse() as response:
            assert response.read(5)
        connection.close()
        wait_for(lambda: bool(_lines(caplog)))
    assert " status=200 outcome=left error=- " in _lines(caplog)[0]
