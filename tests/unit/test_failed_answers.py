"""An answer that fails looks failed: on every path, in the format that the path's clients read.

The table of routes is walked: a new path is named here with its format, or the tests fail.
"""

import http.client
import json
import logging
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lmi_backend.frontend import models
from lmi_backend.frontend.exchange import Exchange
from lmi_backend.frontend.openai import TARGET
from lmi_backend.generation import HttpChunk, openai_error
from lmi_backend.ipc import messages as msg
from tests.support.failing_streams import (
    AT_ENDPOINT,
    BODIES,
    CASES,
    CHAT,
    EVENT,
    EVENTS,
    FORMS,
    IN_EVENTS,
    LMI_STREAM,
    WHY,
    answers_an_error,
    dies,
    error_in,
    fails,
    http_parts,
)  # fmt: skip
from tests.support.scripted_model import NAME, Order, Scripted
from tests.support.waiting import wait_for


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
        if service.needs_key:
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


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of the access log."""
    return [text for text in caplog.messages if " outcome=" in text]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("end", [dies, fails, answers_an_error])
def test_a_stream_thatfails_looks_failed(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, name: str, end: Any
) -> None:
    case = CASES[name]
    if end is answers_an_error and not case.is_http:
        end = fails
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
        assert end is dies or WHY in case.check(data)
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


@pytest.mark.parametrize("path", BEFORE)
def test_a_fault_of_ours_is_said_in_the_format_of_the_path(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(Exchange, "body", broken)
    status, _, data, _ = ask(scripted, "POST", path.replace("{model}", NAME), b"{}")
    assert status in (400, 500)
    assert error_in(_form_of(path), data) == "the request failed; the log says why"


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
    scripted.models[case.model].script = lambda order: [*case.script(order), *fails(order)]
    body = json.dumps(case.body).encode()
    head = f"POST {case.path} HTTP/1.0\r\nhost: localhost\r\n{TARGET}: {case.model}\r\n"
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
