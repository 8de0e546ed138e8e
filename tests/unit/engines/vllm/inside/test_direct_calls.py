"""When vLLM's server must see each answer itself, and what is said of that."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse

from lmi_backend.clients.openai.paths import CHATS
from lmi_backend.engines.vllm.inside import fast_paths
from lmi_backend.engines.vllm.inside.direct_calls import DirectCalls
from lmi_backend.generation import HttpRequest
from lmi_backend.ipc.engine import fast_path_state
from lmi_backend.outline import at_once, outline

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


class Body(BaseModel):
    """What an endpoint reads."""

    prompt: str


async def create_chat_completion(request: Body, raw_request: Any) -> Any:
    """Give what FastAPI would make a response of."""
    return request


ROUTE = SimpleNamespace(
    path=CHATS, endpoint=create_chat_completion, methods={"POST"}, dependencies=[]
)


class Answered:
    may_be_plain = buffers_role = has_template = False

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.take = self.taken.append


async def test_what_is_no_response_is_left_to_the_application() -> None:
    app = application()
    app.routes, app.exception_handlers = [ROUTE], {}
    app.state.openai_serving_chat = SimpleNamespace(parser_cls=None)
    calls = DirectCalls(app, ())
    assert fast_paths.is_on("direct_calls")
    assert calls.plain_paths == {CHATS}
    body, answer = b'{"prompt": "a"}', Answered()
    outlined = at_once(outline(body))
    for _ in range(2):
        assert not await calls.respond(HttpRequest(CHATS, body), cast(Any, answer), outlined)
    assert answer.taken == []
    assert "it gives a Body" in fast_paths.states()["direct_calls"]
    assert not fast_paths.is_on("plain_stream")


def test_a_chat_server_that_is_not_where_it_was_leaves_out_the_pattern() -> None:
    app = application()
    app.routes = [ROUTE]
    assert DirectCalls(app, ()).plain_paths == set()
    assert fast_paths.is_on("direct_calls")
    assert "no openai_serving_chat" in fast_paths.states()["plain_stream"]


class Route(SimpleNamespace):
    """As FastAPI has it."""

    def get_route_handler(self) -> Any:
        """Return what answers a request."""


Route.get_route_handler.__module__ = Route.__module__ = "fastapi.routing"


class CheckedRoute(Route):
    """Looks at each request."""

    def get_route_handler(self) -> Any:
        """Return what looks at it first."""


class CheckedApp(SimpleNamespace):
    """Looks at each request."""

    async def __call__(self, *_: Any) -> None: ...


class CheckedRouter(Starlette):
    """Looks at each request."""

    async def __call__(self, *_: Any) -> None: ...


def served(made: Any = None, route: Any = Route, router: Any = None) -> Any:
    app = made or application()
    app.routes = [route(**vars(ROUTE))]
    if router is not None:
        app.router = router
    return app


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (served(), ""),
        (served(router=Starlette()), ""),
        (served(route=CheckedRoute), f"something else is around {CHATS}"),
        (served(CheckedApp(**vars(application()))), "CheckedApp.__call__"),
        (served(router=CheckedRouter()), "CheckedRouter.__call__"),
    ],
)
def test_a_class_that_looks_at_requests_is_not_passed_by(app: Any, message: str) -> None:
    DirectCalls(app, ())
    assert message in fast_paths.states()["direct_calls"]
    assert bool(message) is not fast_paths.is_on("direct_calls")


def test_a_parser_that_is_a_method_leaves_out_the_pattern() -> None:
    app = application()
    app.routes = [ROUTE]
    app.state.openai_serving_chat = SimpleNamespace(parser_cls=lambda: None)
    assert DirectCalls(app, ()).plain_paths == set()
    assert "a parser is no class" in fast_paths.states()["plain_stream"]


class LateResponse(JSONResponse):
    """Has a header that nobody sees before it is sent."""

    async def __call__(self, *given: Any) -> None:
        self.headers["x-late"] = "1"
        await super().__call__(*given)


_responses: list[Any] = []


async def give_response(request: Body, raw_request: Any) -> Any:
    """Give what is to be given next."""
    return _responses[-1]


async def answered(response: Any) -> tuple[bool, Answered]:
    """Return whether a response was taken from its endpoint, and what came."""
    _responses[:] = [response]
    app = application()
    route = SimpleNamespace(**vars(ROUTE) | {"endpoint": give_response})
    app.routes, app.exception_handlers = [route], {}
    app.state.openai_serving_chat = SimpleNamespace(parser_cls=None)
    body, answer = b'{"prompt": "a"}', Answered()
    outlined = at_once(outline(body))
    request = HttpRequest(CHATS, body)
    is_taken = await DirectCalls(app, ()).respond(request, cast(Any, answer), outlined)
    return is_taken, answer


async def test_a_response_that_changes_while_it_is_sent_is_left_to_the_application() -> None:
    is_taken, answer = await answered(LateResponse({}))
    assert (is_taken, answer.taken) == (False, [])
    assert "it gives a LateResponse" in fast_paths.states()["direct_calls"]


async def test_what_a_response_has_done_afterwards_is_done() -> None:
    done: list[int] = []
    is_taken, answer = await answered(JSONResponse({}, background=BackgroundTask(done.append, 1)))
    assert (is_taken, done) == (True, [1])
    assert [each.data for each in answer.taken] == [b"{}"]
