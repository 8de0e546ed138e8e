import json
from pathlib import Path
from typing import Any

import pytest

from lmi_backend.clients.registry import CLIENTS
from lmi_backend.clients.unserved import UNSERVED_PATHS
from lmi_backend.front_end_settings import Settings
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.frontend.http.routing import Responder, Routes, route
from tests.support.answers.asking import ask


def _service(name: str) -> Responder:
    async def answer(_: Any) -> None:
        raise AssertionError(name)

    return Responder(answer, CLIENTS["openai"])


def _scope(method: str, path: str) -> Any:
    return {"type": "http", "method": method, "path": path, "root_path": ""}


def test_a_path_without_names_is_found_before_those_with() -> None:
    fixed, named, other = _service("fixed"), _service("named"), _service("other")
    routes = Routes(
        [
            (route("/models/{model}", "GET"), named),
            (route("/models/all", "GET POST"), fixed),
            (route("/models/all", "DELETE"), other),
        ]
    )
    assert routes.find(_scope("GET", "/models/all"))[0] is fixed
    found, names, allowed = routes.find(_scope("GET", "/models/one"))
    assert (found, names["path_params"], allowed) == (named, {"model": "one"}, set())
    assert routes.find(_scope("DELETE", "/models/all"))[0] is other
    assert routes.find(_scope("PUT", "/models/all"))[::2] == (
        None,
        {"GET", "HEAD", "POST", "DELETE"},
    )
    assert routes.find(_scope("GET", "/nothing")) == (None, {}, set())


async def test_a_path_that_is_not_served_says_why(tmp_path: Path) -> None:
    front_end = FrontEnd(Settings(base=tmp_path))
    for path, reason in UNSERVED_PATHS.items():
        answer = await ask(front_end, path, method="POST", body=b"{}")
        assert answer.status == 404
        assert json.loads(answer.body)["error"]["message"] == f"{path!r} is not served: {reason}"
    upgrade = {"upgrade": "websocket", "connection": "Upgrade"}
    for path in ("/v1/realtime", "/invocations", "/nothing", "/v1/chat/completions"):
        answer = await ask(front_end, path, upgrade)
        assert answer.status == 404
        assert f"'{path}' is not served as a WebSocket" in answer.body.decode()


@pytest.mark.parametrize(
    ("path", "meant", "remedy", "key"),
    [
        ("/chat/completions", "/v1/chat/completions", "add /v1 to", "error"),
        ("/v1/v1/messages", "/v1/messages", "remove '/v1' from", "type"),
        ("/api/v1/chat/completions/", "/v1/chat/completions", "remove '/api' from", "error"),
        ("//v1/completions", "/v1/completions", "remove '/' from", "error"),
        ("/v1/invocations", "/invocations", "remove '/v1' from", "error"),
        (
            "/v1/completions/chat/completions",
            "/v1/chat/completions",
            "write /v1 in place of '/v1/completions' in",
            "error",
        ),
    ],
)
async def test_who_has_a_wrong_base_url_is_told_the_right_path(
    tmp_path: Path, path: str, meant: str, remedy: str, key: str
) -> None:
    answer = await ask(FrontEnd(Settings(base=tmp_path)), path, method="POST")
    assert (answer.status, key in json.loads(answer.body)) == (404, True)
    text = f"is not served; did you mean '{meant}'? Then {remedy} the client's base URL"
    assert text in answer.body.decode()


@pytest.mark.parametrize("path", ["/v1/", "/v1", "/"])
async def test_a_query_in_a_base_url_is_named(tmp_path: Path, path: str) -> None:
    front_end = FrontEnd(Settings(base=tmp_path))
    answer = await ask(front_end, f"{path}?x=1/completions", method="POST")
    assert answer.status == 404
    text = f"'{path}' is not served; remove '?' and what follows from the client's base URL"
    assert json.loads(answer.body)["error"]["message"] == text


@pytest.mark.parametrize("path", ["/none", "/none/", "/v1", "/v1/none", "/", "/a/b/c/d/e/f/g/h/i"])
async def test_nothing_is_guessed_of_other_paths(tmp_path: Path, path: str) -> None:
    answer = await ask(FrontEnd(Settings(base=tmp_path)), path, method="POST")
    assert b"did you mean" not in answer.body
