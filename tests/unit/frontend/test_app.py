"""What holds on each path of the table: a key's limits, and what is refused by its name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.clients.lmi import INVOCATIONS
from lmi_backend.clients.registry import CLIENTS, UPLOADS
from lmi_backend.clients.spec import ANYBODY, INVOKE, PROBE
from lmi_backend.frontend.http.api_keys import hash_of
from lmi_backend.frontend.http.bodies import LARGE
from lmi_backend.frontend.resumable import LAST_ID, WANTED
from lmi_backend.generation import HttpChunk
from lmi_backend.ipc import messages as msg
from lmi_backend.json_text import MOST_VALUES
from tests.support.doubles.scripted_model import NAME, OWN, Scripted, ScriptedModel

HEADERS: dict[str, dict[str, str]] = {
    "plain": {},
    "an event": {LAST_ID: f"{'A' * 16}.1"},
    "no event": {LAST_ID: "odd"},
    "resumable": {WANTED: "1"},
    "resumable event": {WANTED: "1", LAST_ID: f"{'A' * 16}.1"},
    "model": {"x-amzn-sagemaker-target-model": NAME},
    "attributes": {"x-amzn-sagemaker-custom-attributes": "a=b"},
    "session": {"x-amzn-sagemaker-session-id": "NEW_SESSION"},
    "closed session": {"x-amzn-sagemaker-closed-session-id": "a"},
    "inference id": {"x-amzn-sagemaker-inference-id": "a", "x-request-id": "a"},
}
ROUTES = sorted(
    {
        (method, re.sub(r"\{[^}]*\}", NAME, path.template))
        for client in CLIENTS.values()
        for path in client.paths
        if path.who not in (ANYBODY, PROBE)
        for method in path.methods.split()
    }
)
QUERIES = ("", "?stream=true", "?stream=true&starting_after=1")


def _secret(*of: object) -> str:
    return hash_of(repr(of))[-40:]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    """Each case has a key of its own, of one request a minute."""
    folder: Path = tmp_path_factory.mktemp("server")
    cases = [(*route, name, stops) for route in ROUTES for name in HEADERS for stops in (0, 1)]
    lines = (
        f"k{number} {hash_of(_secret(*case))} requests-per-minute=1 operator\n"
        for number, case in enumerate(cases)
    )
    (folder / "keys").write_text("".join(lines), "utf-8")
    with Scripted(folder, api_keys=folder / "keys").run() as server:
        yield server


@pytest.mark.parametrize("is_stopping", [False, True], ids=["serves", "stops"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_the_second_request_of_a_minute_is_refused(
    limited: Scripted, monkeypatch: pytest.MonkeyPatch, method: str, path: str, *, is_stopping: bool
) -> None:
    monkeypatch.setattr(limited.front_end.health, "is_stopping", is_stopping)
    for name, headers in HEADERS.items():
        if is_stopping and name not in ("plain", "an event"):
            continue
        key = {"authorization": f"Bearer {_secret(method, path, name, int(is_stopping))}"}
        for query in QUERIES:
            answer = limited.ask(method, path + query, b"{}", **headers, **key)
        assert answer.status == 429, (name, answer.data)


SERVICE = "x-amzn-sagemaker-"
EXTRAS: dict[str, tuple[dict[str, str], dict[str, str], str]] = {
    "session": ({f"{SERVICE}session-id": "NEW_SESSION"}, {}, "SessionId NEW_SESSION"),
    "explanation": ({f"{SERVICE}enable-explanations": "`true`"}, {}, "EnableExplanations"),
    "request for a session": ({}, {"requestType": "NEW_SESSION"}, "requestType NEW_SESSION"),
    "request for its end": ({}, {"requestType": "CLOSE"}, "requestType CLOSE"),
}
INVOKED = [
    re.sub(r"\{[^}]*\}", NAME, path.template)
    for client in CLIENTS.values()
    for path in client.paths
    if path.action == INVOKE
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with Scripted(tmp_path_factory.mktemp("server")).run() as server:
        yield server


@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("path", INVOKED)
def test_what_is_wanted_besides_an_answer_is_refused_on_each_path_of_the_body(
    server: Scripted, path: str, extra: str, size: int
) -> None:
    headers, more, words = EXTRAS[extra]
    body = json.dumps({"model": NAME, "inputs": "a" * size} | more).encode()
    answer = server.ask("POST", path, body, **headers)
    assert (answer.status, words in answer.data.decode()) == (400, True), answer.data


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages"])
def test_what_a_worker_would_refuse_unread_is_read_by_nobody(server: Scripted, path: str) -> None:
    """A stub that counts its answers would look at each value."""
    body = b'{"model": "%s", "prompt": [%s0]}' % (NAME.encode(), b"[[]]," * MOST_VALUES)
    answer = server.ask("POST", path, body)
    assert (answer.status, b"values; accepted: at most 300000" in answer.data) == (413, True)


def _orders_of(model: ScriptedModel) -> list[Any]:
    """Return a list of what comes to a model, which answers it."""
    orders: list[Any] = []

    def answer(order: Any) -> list[msg.ToClient | None]:
        orders.append(order)
        return [msg.Output(order.id, HttpChunk(b"{}", is_last=True))]

    model.script = answer
    return orders


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)),
        b"\xff_ADAPTER",
        b'["_ADAPTER"]',
        b'{"inputs": "LIST_ADAPTERS"}',
        b"{_ADAPTER",
    ],
)
def test_users_code_gets_bytes_that_are_no_text(server: Scripted, data: bytes) -> None:
    orders = _orders_of(server.models[OWN])
    answer = server.ask("POST", f"/models/{OWN}/invoke", data, **{"content-type": "video/mp4"})
    assert answer.data == b"{}"
    assert [(each.request.path, each.request.body) for each in orders] == [(INVOCATIONS, data)]


@pytest.mark.parametrize("path", sorted(UPLOADS))
def test_an_upload_reaches_the_engine_as_it_is(server: Scripted, path: str) -> None:
    orders = _orders_of(server.models[NAME])
    kind = "multipart/form-data; boundary=X"
    data = f'--X\r\nname="model"\r\n\r\n{NAME}\r\n--X\r\n'.encode() + b"\xff\xfe\0--X--"
    assert server.ask("POST", path, data, **{"content-type": kind}).data == b"{}"
    asked = orders[0].request
    assert (asked.path, asked.body, asked.headers["content-type"]) == (path, data, kind)
    assert server.ask("POST", path, data.replace(NAME.encode(), b"x")).status == 400
    unknown = data.replace(NAME.encode(), b"unknown")
    assert server.ask("POST", path, unknown, **{"content-type": kind}).status == 404


def test_a_request_goes_with_what_its_headers_name_and_what_changes_nothing_is_said_once(
    server: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    orders = _orders_of(server.models[NAME])
    headers = {"x-session-id": "one", f"{SERVICE}prefix-aware-id": "two"}
    headers["x-llm-d-slo-ttft-ms"] = "500"
    body = {"model": NAME, "inputs": "a", "parameters": {"a_name_of_nobody": 1}}
    for _ in range(2):
        server.ask("POST", "/invocations", json.dumps(body).encode(), **headers)
    # A header of SageMaker's comes first.
    assert [(each.session, each.promise) for each in orders] == [("two", (500, 0))] * 2
    (record,) = [each for each in caplog.records if "a_name_of_nobody" in each.getMessage()]
    assert "is unknown" in record.getMessage()
