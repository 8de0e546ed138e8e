"""What is said of clients once, and whether the front end, the stub and the worker use it."""

import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

from lmi_backend import clients
from lmi_backend.clients.registry import (
    CLIENTS,
    PATHS,
    client_near,
    path_at,
)
from lmi_backend.clients.request import read_request
from lmi_backend.engine_config import Context
from lmi_backend.errors import HttpError
from lmi_backend.front_end_settings import Settings
from lmi_backend.frontend.app import FrontEnd
from lmi_backend.generation import HttpRequest
from lmi_backend.ipc import messages as msg
from lmi_backend.serving.new_requests import may_wait
from lmi_backend.tokenization import TOKEN_PATHS

TENSORS = [path for path in PATHS if path.by_tensor]


def _shown(template: str) -> str:
    return "/".join("x" if part.startswith("{") else part for part in template.split("/"))


def test_every_module_with_a_spec_is_a_client() -> None:
    modules = [f"{clients.__name__}.{each.name}" for each in pkgutil.iter_modules(clients.__path__)]
    found = [each for each in modules if hasattr(import_module(each), "SPEC")]
    assert {f"{clients.__name__}.{name}" for name in CLIENTS} == {*found}
    assert {name: spec.name for name, spec in CLIENTS.items()} == {name: name for name in CLIENTS}


def test_a_template_is_found_by_its_paths() -> None:
    for template in (path.template for path in PATHS):
        found = path_at(_shown(template))
        assert found is not None, template
        assert found.template == template
        assert path_at(f"{_shown(template)}?stream=true") is found, template


@pytest.mark.parametrize(
    "path",
    ["/pause", "/v1/responses/", "/v1/responses/a/b", "/v1/messages/batches", "", "/v1/models/"],
)
def test_what_nobody_serves_is_not_found(path: str) -> None:
    assert path_at(path) is None


@pytest.mark.parametrize("path", TENSORS, ids=lambda path: path.template)
def test_what_the_front_end_relays_may_come_by_tensor(path: object) -> None:
    shown = _shown(path.template)  # type: ignore[attr-defined]
    body = '{"prompt": "a"}'
    work = read_request([{"request": [body], "path": [shown]}], {}, Context()).work
    assert isinstance(work, HttpRequest)


def test_no_other_path_may() -> None:
    for template in {path.template for path in PATHS} - {path.template for path in TENSORS}:
        with pytest.raises(HttpError, match=f"{_shown(template)}.* is not served"):
            read_request([{"request": ["{}"], "path": [_shown(template)]}], {}, Context())


@pytest.mark.parametrize(
    ("path", "waits"),
    [
        ("/v1/chat/completions", True),
        ("/v1/messages", True),
        ("/v1/responses", True),
        ("/rerank", True),
        ("/invocations", True),
        ("/unknown", True),
        ("/v1/messages/count_tokens", False),
        ("/tokenize", False),
        ("/detokenize", False),
        ("/v1/models", False),
        ("/version", False),
        ("/v1/responses/resp_1", False),
        ("/v1/responses/resp_1?stream=true", False),
        ("/v1/responses/resp_1/cancel", False),
        *((path, False) for path in sorted(TOKEN_PATHS)),
    ],
)
def test_what_is_no_work_for_the_engine_does_not_wait(path: str, waits: bool) -> None:
    assert may_wait(msg.SubmitHttp(1, HttpRequest(path, b"{}"))) is waits


@pytest.mark.parametrize(
    ("path", "client"),
    [
        ("/v1/messages/batches", "anthropic"),
        ("/v1/responses/compact/x", "responses"),
        ("/v1/responses", "responses"),
        ("/v1/files", "openai"),
        ("/nothing", "openai"),
        ("/", "tgi"),
        ("/generate/x", "tgi"),
        ("/endpoints/a/other", "sagemaker"),
        ("/models/a/other", "lmi"),
        ("/invocations/x", "lmi"),
        ("/v2/repository/index", "triton"),
        ("/v2/rerank/x", "openai"),
    ],
)
def test_an_unknown_path_is_refused_in_the_form_of_the_paths_above(path: str, client: str) -> None:
    assert client_near(path) is CLIENTS[client]


def test_the_front_end_serves_every_path_and_says_whose_it_is(tmp_path: Path) -> None:
    rows = list(FrontEnd(Settings(base=tmp_path)).make_routes())
    served = {(row.path, frozenset(row.methods or ())): service for row, service in rows}
    for client in CLIENTS.values():
        for path in client.paths:
            if path.member:
                # Whose request it is, its body tells.
                continue
            methods = {*path.methods.split(), *(["HEAD"] if "GET" in path.methods else [])}
            service = served[path.template, frozenset(methods)]
            assert (service.client, service.who) == (client, path.who)
