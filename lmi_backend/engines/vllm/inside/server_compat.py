"""The names of vLLM's HTTP server, as compat.py has those of its engine."""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, get_args, get_type_hints

from lmi_backend.clients.openai.paths import CHATS, COMPLETIONS
from lmi_backend.engines.vllm.inside import names, needs
from lmi_backend.printable import cut

_log = logging.getLogger(__name__)

_WATCHING = (
    "middleware", "enable_request_id_headers", "enable_server_load_tracking", "enable_log_outputs",
    "sse_keep_alive_interval",
)  # fmt: skip
"""Options of vLLM's server that have each response looked at, or written to."""
_LEFT_OUT: Final = {"with_cancellation", "load_aware_call"}
"""Decorators of vLLM's endpoints that do nothing for an answer: we cancel by ourselves."""
_CHECKED: Final = {"validate_json_request"}
"""Dependencies of its routes that refuse what is not called here."""
_COUNTING: Final = "PrometheusInstrumentatorMiddleware"
_NOT_NEEDED = {"CORSMiddleware", _COUNTING, "ScalingMiddleware"}
"""Middleware of vLLM's server that does nothing for an answer: no web page sends requests here,
nobody reads the counts, and the engine is not scaled through this server."""

MESSAGES: Final = "/v1/messages"
_PARTS: Final = {CHATS: "openai_serving_chat", MESSAGES: "anthropic_serving_messages"}
"""Paths, and the members of the application's state that answer them."""

_HIDDEN: Final = ("VLLM_API_KEY", "CUSTOM_SCRIPT_FILENAME")
"""What the environment must not say to vLLM's server.

Its key would guard some clients' way to the model and not the others'. The file, model.py where it
is not named, is run when the server is built, and LMI's users keep a handler of LMI's there.
"""


def http_server() -> SimpleNamespace:
    """Return the parts of vLLM's HTTP server."""
    return SimpleNamespace(
        build_app=names.build_app,
        init_app_state=names.init_app_state,
        argument_parser=partial(_parser, names.make_arg_parser, names.FlexibleArgumentParser()),
        import_tool_parser=_import_tool_parser,
    )


def _parser(make: Callable[[Any], Any], own: Any) -> Any:
    return needs.checked(make(own), "make_arg_parser", "parse_args")


def _import_tool_parser(path: str) -> None:
    # Looked up for a user's file alone: a release may have none.
    names.ToolParserManager.import_tool_parser(path)


def cut_messages() -> None:
    """Have vLLM's server cut the text of an error before it looks for paths in it.

    0.32 looks with an expression that takes the square of the text, on its only event loop: a
    reference of 120 kB, which the text quotes, takes a minute and a half.
    """
    found = False
    for name, module in list(sys.modules.items()):
        own = getattr(module, "__dict__", {}).get("sanitize_message")
        if name.startswith("vllm.") and callable(own):
            module.sanitize_message = partial(_sanitized, own)  # type: ignore[attr-defined]
            found = True
    if not found:
        raise LookupError("no module of it has sanitize_message")


def _sanitized(sanitize: Callable[..., str], *given: Any, **named: Any) -> str:
    return sanitize(*map(_cut, given), **{name: _cut(value) for name, value in named.items()})


def _cut(value: Any) -> Any:
    return cut(value) if isinstance(value, str) else value


def call(function: Callable[..., Any], **given: Any) -> Any:
    """Call a function of vLLM's with what its release takes of these arguments."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in taken})


def stop_counting(app: Any) -> None:
    """Have an application not count its requests: nobody reads it here.

    With some releases of FastAPI what counts fails, and each answer is an error.
    """
    app.user_middleware[:] = [
        each for each in app.user_middleware if each.cls.__name__ != _COUNTING
    ]
    # What vLLM does for SageMaker may have built the stack already.
    if getattr(app, "middleware_stack", None) is not None:
        app.middleware_stack = app.build_middleware_stack()


def watchers(app: Any) -> list[str]:
    """Return the options and the middleware that look at each response of vLLM's application."""
    options = [name for name in _WATCHING if getattr(app.state.args, name, None)]
    middleware = {each.cls.__name__ for each in app.user_middleware}
    return options + sorted(middleware - _NOT_NEEDED)


def endpoints(app: Any) -> dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]]:
    """Return the functions that answer bodies, by path, and what reads the bodies for them."""
    return {
        route.path: (endpoint, read)
        for route in reversed(app.routes)  # the first of a path answers
        if "POST" in (getattr(route, "methods", None) or ())
        for endpoint in [_endpoint(route)]
        if endpoint is not None and (read := _reader_of_body(endpoint)) is not None
    }


def _endpoint(route: Any) -> Callable[..., Any] | None:
    """Return the function that answers a route, without what is around it.

    None if what is around it may change an answer: a decorator or a dependency that is not known.
    """
    endpoint: Callable[..., Any] = inspect.unwrap(route.endpoint)
    try:
        dependencies = {each.dependency.__name__ for each in route.dependencies}
        (function,) = ast.parse(inspect.getsource(endpoint)).body
    except (AttributeError, OSError, SyntaxError, TypeError, ValueError):
        return None
    decorators = {ast.unparse(each) for each in getattr(function, "decorator_list", ())}
    around = {each for each in decorators if not each.startswith("router.")}
    return endpoint if dependencies <= _CHECKED and around <= _LEFT_OUT else None


def _reader_of_body(endpoint: Callable[..., Any]) -> Callable[[Any], Any] | None:
    """Return what reads the body of an endpoint that takes it and the request; None of others."""
    from pydantic import BaseModel, TypeAdapter  # noqa: PLC0415  as vLLM's server, when it is built

    if list(inspect.signature(endpoint).parameters) != ["request", "raw_request"]:
        return None
    kind = get_type_hints(endpoint)["request"]
    kinds = get_args(kind) or (kind,)  # of a union, or itself
    if not all(isinstance(each, type) and issubclass(each, BaseModel) for each in kinds):
        return None
    # Whole, with what tells the members of a union apart.
    kind = get_type_hints(endpoint, include_extras=True)["request"]
    return TypeAdapter(kind).validate_python


def members_read(app: Any) -> dict[str, frozenset[str]]:
    """Return the members that an application reads of the bodies of each path, where it tells."""
    found = {}
    for route in reversed(app.routes):  # the first of a path answers
        try:
            hint = get_type_hints(inspect.unwrap(route.endpoint))["request"]
            kinds = [each.model_fields for each in get_args(hint) or (hint,)]
        except (AttributeError, KeyError, NameError, TypeError):
            continue
        names = {name for kind in kinds for name in kind}
        names |= {each.alias for kind in kinds for each in kind.values() if each.alias}
        found[route.path] = frozenset(names)
    return found


def answering(app: Any, path: str) -> Any:
    """Return the part of vLLM's server that answers a path; None if none does.

    Raises:
        LookupError: there is a route, and the application's state does not have the part.
    """
    name = _PARTS[path]
    if not hasattr(app.state, name) and path in {getattr(each, "path", "") for each in app.routes}:
        raise LookupError(f"the application's state has no {name}")
    return getattr(app.state, name, None)


def plain_paths(app: Any) -> set[str]:
    """Return the paths whose streams can be plain.

    Args:
        app: vLLM's. Chats are not plain where more than text is read out of them.

    Raises:
        LookupError: it does not tell what reads its chats.
    """
    chat = answering(app, CHATS)
    if chat is None:
        return {COMPLETIONS}
    parsers = [
        getattr(chat, name)
        for name in ("parser_cls", "reasoning_parser", "tool_parser")  # the first since 0.30
        if hasattr(chat, name)
    ]
    if not parsers:
        raise LookupError("it has none of the known members for them")
    return {COMPLETIONS} if any(parsers) else {COMPLETIONS, CHATS}


def http_request(scope: dict[str, Any], app: Any) -> Any:
    """Return a request as vLLM's server hands it on."""
    from starlette.requests import Request  # noqa: PLC0415

    return Request({**scope, "app": app, "state": {}}, _nothing_more)


async def _nothing_more() -> Any:
    """Wait for what a client sends after its body: its disconnect is a cancel here.

    An endpoint that calls another calls it with its decorators, which listen for that.
    """
    await asyncio.get_running_loop().create_future()


@contextmanager
def hidden() -> Iterator[None]:
    """Hide from vLLM what it must not see."""
    before = {name: os.environ.get(name) for name in _HIDDEN}
    if before["VLLM_API_KEY"]:
        _log.warning(
            "VLLM_API_KEY is ignored: keys are checked by the front end or a proxy (--api-keys)"
        )
    # Empty, not absent: that is a file of no name.
    os.environ.update(dict.fromkeys(_HIDDEN, ""))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
