"""An answer that fails looks failed: on every path, in the format that the path's clients read.

The table of routes is walked: a new path is named here with its format, or the tests fail.
"""

import http.client
import json
import logging
import re
import secrets
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from lmi_backend.clients.spec import TARGET
from lmi_backend.frontend import models
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from tests.support.answers.failing_streams import (
    CASES,
    CHAT,
    EVENT,
    EVENTS,
    FORMS,
    IN_EVENTS,
    WHOLE,
    WHY,
    answers_an_error,
    dies,
    fails,
    http_parts,
    of_sagemaker,
    paths_of,
)
from tests.support.doubles.scripted_model import NAME, Order, Scripted
from tests.support.run.waiting import HANG_SECONDS, wait_for


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with (
        pytest.MonkeyPatch.context() as patch,
        Scripted(tmp_path_factory.mktemp("server"), max_body=1 << 16).run() as server,
    ):
        # A model that has died is found again sooner.
        patch.setattr(models, "_LOOK_SECONDS", 0.01)
        yield server


NEVER_STREAMED = {
    "/v1/responses/{id}", "/v1/responses/{id}/cancel", "/v1/models", "/v1/models/{model:path}",
    "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/api/state", "/models/{model}/adapters",
    "/models/{model}/adapters/{adapter}", "/adapters", "/adapters/{adapter}", "/models",
    "/models/{model}", "/generate", "/chat_tokenize", "/info", "/v2", "/v1/messages/render",
    "/openapi.json", *WHOLE,
}  # fmt: skip
"""Paths whose answers are whole, or that have the code of a path above."""


def test_every_path_of_the_front_end_is_known_here(scripted: Scripted) -> None:
    paths = [path for path, _, _ in paths_of(scripted)]
    assert set(paths) == set(FORMS)
    tried = {case.path for case in CASES.values()}
    left = {row for row, path, _ in paths_of(scripted) if path not in tried}
    assert left - {"/v2/{rest:path}"} == NEVER_STREAMED


def _line(caplog: pytest.LogCaptureFixture, request_id: str) -> str:
    """Return a request's line of the access log."""

    def lines() -> list[str]:
        return [text for text in caplog.messages if f" id={request_id} " in text]

    wait_for(lambda: bool(lines()))
    (line,) = lines()
    return line


@pytest.fixture
def request_id() -> str:
    return secrets.token_hex(8)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("end", [dies, fails, answers_an_error])
def test_a_stream_that_fails_looks_failed(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, request_id: str, name: str, end: Any
) -> None:
    case = CASES[name]
    if end is answers_an_error and not case.is_http:
        end = fails
    scripted.wait()
    scripted.models[case.model].script = lambda order: [*case.script(order), *end(order)]
    with caplog.at_level(logging.INFO):
        status, _, data, has_end = scripted.ask(
            "POST",
            case.path,
            json.dumps(case.body).encode(),
            **{TARGET: case.model, "x-request-id": request_id},
        )
        line = _line(caplog, request_id)
    assert (status, has_end) == (200, case.has_end)
    if case.check is not None:
        assert case.check(data)
        assert end is dies or WHY in case.check(data)
    assert re.search(r" status=200 outcome=failed error=[A-Z]\w+ ms=", line), line


@pytest.mark.parametrize("name", CASES)
def test_a_client_of_http_1_0_sees_that_a_stream_fails(scripted: Scripted, name: str) -> None:
    """Its responses end where the connection does: one without an end is reset."""
    case = CASES[name]
    scripted.wait()
    scripted.models[case.model].script = lambda order: [*case.script(order), *fails(order)]
    body = json.dumps(case.body).encode()
    answer = scripted.ask_as_of_old(case.path, body, **{TARGET: case.model})
    assert (answer.status, answer.has_end) == (200, case.has_end)
    if case.check is not None:
        assert WHY in case.check(answer.data)


@pytest.mark.parametrize("name", ["/v1/chat/completions", "lines", "raw", "own text", "tgi"])
def test_a_client_of_http_1_0_gets_each_part_as_it_comes(scripted: Scripted, name: str) -> None:
    case = CASES[name]
    scripted.wait()
    # It says no more than this.
    scripted.models[case.model].script = case.script
    body = json.dumps(case.body).encode()
    with scripted.ask_of_old(case.path, body, **{TARGET: case.model}) as connection:
        received = b""
        while not received.partition(b"\r\n\r\n")[2]:
            received += connection.recv(1 << 16)
        # A silent stream without chunks has no byte that could tell whether its client is there.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    lines = received.lower().partition(b"\r\n\r\n")[0].split(b"\r\n")
    expected = {b"connection: close", b"cache-control: no-cache", b"x-accel-buffering: no"}
    assert expected <= set(lines)
    assert not [line for line in lines if line.startswith((b"transfer-", b"content-length"))]


@pytest.fixture
def before_triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    """A front end of a tritonserver that dies in the middle of each answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    thread = threading.Thread(target=_die_in_the_middle, args=(listener,))
    thread.start()
    with Scripted(tmp_path_factory.mktemp("server"), triton_url=url).run() as server:
        yield server
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def _die_in_the_middle(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            asked = connection.recv(1 << 16)
            kind = "text/event-stream" if b"generate_stream" in asked else "application/json"
            head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
            connection.sendall(head.encode() + b"9\r\ndata: {}\n\r\n")


@pytest.mark.parametrize("word", ["generate", "generate_stream"])
def test_what_a_dying_triton_has_begun_looks_failed(
    before_triton: Scripted, caplog: pytest.LogCaptureFixture, request_id: str, word: str
) -> None:
    path, body = f"/v2/models/another/{word}", b'{"text_input": "a"}'
    with caplog.at_level(logging.INFO):
        answer = before_triton.ask("POST", path, body, **{"x-request-id": request_id})
        line = _line(caplog, request_id)
    assert (answer.status, answer.has_end) == (200, word == "generate_stream")
    assert (b"tritonserver exited before the answer was complete" in answer.data) == answer.has_end
    assert " status=200 outcome=failed error=Client" in line
    old = before_triton.ask_as_of_old(path, body)
    assert (old.status, old.has_end) == (200, word == "generate_stream")


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
    request_id = secrets.token_hex(8)
    scripted.wait()

    def script(order: Order) -> Sequence[msg.ToClient]:
        *before, end = http_parts(EVENTS, EVENT, EVENT, last)(order)
        assert isinstance(end, msg.Output)
        return [*before, msg.Output(order.id, HttpChunk(end.chunk.data, is_last=True))]

    scripted.models[NAME].script = script
    with caplog.at_level(logging.INFO):
        status, _, data, has_end = scripted.ask(
            "POST", path, json.dumps(CHAT).encode(), **{"x-request-id": request_id}
        )
        line = _line(caplog, request_id)
    assert (status, has_end) == (200, True)
    assert of_sagemaker(data) == last.decode().strip() if path == IN_EVENTS else last in data
    assert f" status=200 outcome={outcome} ms=" in line


def test_the_log_tells_a_client_that_left_from_an_answer_that_failed(
    scripted: Scripted, caplog: pytest.LogCaptureFixture, request_id: str
) -> None:
    scripted.wait()
    scripted.models[NAME].script = http_parts(EVENTS, EVENT, EVENT)
    connection = http.client.HTTPConnection("127.0.0.1", scripted.port, timeout=HANG_SECONDS)
    headers = {"x-request-id": request_id}
    connection.request("POST", "/v1/completions", json.dumps(CHAT).encode(), headers)
    with caplog.at_level(logging.INFO):
        with connection.getresponse() as response:
            assert response.read(5)
        connection.close()
        line = _line(caplog, request_id)
    assert " status=200 outcome=left error=- " in line


@pytest.mark.parametrize("body", [b"not json", b"", b"[1]", b"\xff", b'{"model": 5}'])
def test_a_body_of_lmis_that_is_none_fails_as_where_there_is_one_model(
    scripted: Scripted, body: bytes
) -> None:
    scripted.wait()
    status, _, data, _ = scripted.ask("POST", "/invocations", body)
    assert (status, json.loads(data)["code"]) == (424, 424)
