"""When vLLM's server must see each answer itself, and what is said of that."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.direct_calls import DirectCalls
from lmi_backend.ipc.engine import fast_path_state

OFF = ("direct_calls", "plain_stream")


@pytest.fixture(autouse=True)
def all_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_paths, "_off", {})


def application(*middleware: str, **arguments: Any) -> Any:
    classes = [SimpleNamespace(cls=type(name, (), {})) for name in middleware]
    state = SimpleNamespace(args=SimpleNamespace(**arguments))
    return SimpleNamespace(state=state, routes=[], user_middleware=classes)


@pytest.mark.parametrize(
    ("app", "options", "state", "message"),
    [
        (
            application(enable_log_outputs=True),
            {"enable_log_outputs": True},
            "chosen",
            "option.enable_log_outputs has vLLM's server look at each answer",
        ),
        (
            application("TheirMiddleware", middleware=["their.TheirMiddleware"]),
            {"middleware": ["their.TheirMiddleware"]},
            "chosen",
            "option.middleware has",
        ),
        # A release's own, which nobody asked for.
        (application("AuditMiddleware"), {}, "public", "AuditMiddleware"),
        (application(sse_keep_alive_interval=15), {}, "public", "sse_keep_alive_interval"),
    ],
)
def test_an_application_that_looks_at_answers_is_not_passed_by(
    app: Any, options: Any, state: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert DirectCalls(app, options).plain_paths == set()
    for name in OFF:
        assert fast_path_state(fast_paths.states()[name]) == state
        assert message in fast_paths.states()[name]
    warned = {record.levelno >= logging.WARNING for record in caplog.records}
    assert warned == ({True} if state == "public" else set())


def test_middleware_that_does_nothing_for_an_answer_is_passed_by() -> None:
    app = application("CORSMiddleware", "PrometheusInstrumentatorMiddleware", middleware=[])
    DirectCalls(app, {})
    assert fast_paths.is_on("direct_calls")


def test_routes_that_hide_their_paths_are_not_passed_by() -> None:
    """A newer FastAPI keeps a router that was included as one route."""
    app = application()
    app.routes = [SimpleNamespace(original_router=None)]
    calls = DirectCalls(app, ())
    assert not calls.plain_paths
    assert not fast_paths.is_on("direct_calls")
    assert not fast_paths.is_on("plain_stream")
