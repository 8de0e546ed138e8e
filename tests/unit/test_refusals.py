"""Refusals and faults before an answer, on every path, in the format of the path's clients.

The table of routes is walked: a new path is named here with its format, or the tests fail.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_backend.clients.openai import refusal
from lmi_backend.clients.spec import TARGET
from lmi_backend.errors import HttpError
from lmi_backend.frontend.http.exchange import Exchange
from lmi_backend.ipc import messages as msg
from tests.support.answers.failing_streams import (
    AT_ENDPOINT,
    BODIES,
    CHAT,
    FORMS,
    IN_EVENTS,
    LMI_STREAM,
    error_in,
    form_of,
    paths_of,
)
from tests.support.doubles.scripted_model import NAME, Scripted


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with Scripted(tmp_path_factory.mktemp("server"), max_body=1 << 16).run() as server:
        yield server


@pytest.fixture(scope="module")
def with_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with Scripted(tmp_path_factory.mktemp("server"), api_key="a-key").run() as server:
        yield server


def test_every_path_says_in_its_own_format_that_a_key_is_missing(with_key: Scripted) -> None:
    for row, path, methods in paths_of(with_key):
        for method in methods:
            status, headers, data, _ = with_key.ask(method, path)
            assert status in (401, 403), path
            assert error_in(FORMS[row], data), path
            assert ("x-amzn-errortype" in headers) == (FORMS[row] == "sagemaker")


def test_every_path_says_in_its_own_format_that_a_method_is_not_served(scripted: Scripted) -> None:
    for row, path, _ in paths_of(scripted):
        status, headers, data, _ = scripted.ask("PATCH", path)
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
    status, _, data, _ = scripted.ask("POST", path)
    assert status == 404
    assert error_in(form, data)


BEFORE = {
    **dict.fromkeys((*BODIES, "/v1/messages", "/v1/messages/count_tokens"), CHAT),
    "/v1/responses": CHAT,
    **dict.fromkeys(("/invocations", "/predictions/{model}", AT_ENDPOINT), LMI_STREAM),
    **dict.fromkeys(("/models/{model}/invoke", IN_EVENTS, "/generate", "/"), LMI_STREAM),
    "/generate_stream": LMI_STREAM,
}
"""Body of a request of each path whose answer comes from a model."""


@pytest.mark.parametrize("path", BEFORE)
def test_what_is_refused_before_the_answer_is_said_in_the_format_of_the_path(
    scripted: Scripted, path: str
) -> None:
    scripted.wait()
    form, asked = form_of(path), path.replace("{model}", NAME)
    body = json.dumps(BEFORE[path]).encode()
    full = "8 requests run and 8 wait"
    scripted.models[NAME].script = lambda order: [msg.Failure(order.id, "unavailable", full)]
    status, headers, data, has_end = scripted.ask("POST", asked, body, **{TARGET: NAME})
    assert (status, has_end, headers["retry-after"]) == (503, True, "1")
    assert error_in(form, data) == full
    status, _, data, _ = scripted.ask("POST", asked, b"{", **{TARGET: NAME})
    assert status in (400, 422, 424)
    assert error_in(form, data)
    status, _, data, _ = scripted.ask("POST", asked, b" " * (1 << 17), **{TARGET: NAME})
    assert status in (400, 413)
    assert "the body is larger than" in error_in(form, data)


@pytest.mark.parametrize("path", BEFORE)
def test_a_fault_of_ours_is_said_in_the_format_of_the_path(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(Exchange, "body", broken)
    status, _, data, _ = scripted.ask("POST", path.replace("{model}", NAME), b"{}")
    assert status in (400, 500)
    assert error_in(form_of(path), data) == "the request failed; the log says why"


def test_a_drained_server_refuses_each_path_in_its_own_format(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Scripted(tmp_path_factory.mktemp("server")).run() as server:
        server.front_end.drain()
        for row, path, methods in paths_of(server):
            status, _, data, _ = server.ask(min(methods), path)
            assert status == 503, path
            assert "stop" in error_in(FORMS[row], data)


def test_an_engines_own_error_has_anthropics_format_for_anthropics_clients(
    scripted: Scripted,
) -> None:
    """Of vLLM's server some have OpenAI's, and so have those of other engines."""
    scripted.wait()
    scripted.models[NAME].script = lambda order: [
        msg.Output(order.id, refusal(HttpError(404, "served by vLLM only")))
    ]
    status, _, data, _ = scripted.ask("POST", "/v1/messages", json.dumps(CHAT).encode())
    assert (status, json.loads(data)) == (
        404,
        {"type": "error", "error": {"type": "not_found_error", "message": "served by vLLM only"}},
    )


def test_a_path_of_two_clients_refuses_in_the_form_of_the_one_whose_body_it_is(
    scripted: Scripted,
) -> None:
    scripted.wait()
    status, _, data, _ = scripted.ask("POST", "/tokenize", b'{"inputs": 1}', **{TARGET: NAME})
    assert (status, "inputs" in error_in("tgi", data)) == (422, True)
    status, _, data, _ = scripted.ask("POST", "/tokenize", b"{", **{TARGET: NAME})
    assert (status, "JSON" in error_in("openai", data)) == (400, True)
