"""The names of vLLM's HTTP server, as compat.py has those of its engine."""

from __future__ import annotations

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
    "sse_keep_alive_interval", "enable_per_request_metrics", "enable_prompt_tokens_details",
)  # fmt: skip
"""Options of vLLM's server that have each response looked at, or written to."""
_SPECULATION: Final = "per_request_spec_decode_metrics"
_COUNTING: Final = "PrometheusInstrumentatorMiddleware"
_NOT_NEEDED = {"CORSMiddleware", _COUNTING, "ScalingMiddleware"}
"""Middleware of vLLM's server that does nothing for an answer: no web page sends requests here,
nobody reads the counts, and the engine is not scaled through this server."""

MESSAGES: Final = "/v1/messages"
_PARTS: Final = {
    CHATS: ("openai_serving_chat", "OpenAIServingChat"),
    MESSAGES: ("anthropic_serving_messages", "AnthropicServingMessages"),
    COMPLETIONS: ("openai_serving_completion", "OpenAIServingCompletion"),
}
"""Paths, and the members of the application's state that answer them, with their classes."""

_FRAMEWORK: Final = ("fastapi", "starlette")
_ANSWERING: Final = (
    "__call__", "app", "build_middleware_stack", "get_route_handler", "handle", "stream_response"
)  # fmt: skip
"""Methods of an application, its router, its routes and responses, through which an answer goes."""

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
    # Its values come with the last output of a request (0.32).
    if getattr(app.state.args, _SPECULATION, "none") not in (None, "none"):
        options.append(_SPECULATION)
    middleware = {each.cls.__name__ for each in app.user_middleware}
    kinds = [type(app), type(getattr(app, "router", app))]
    own = [name for kind in kinds for name in own_methods(kind)]
    return options + sorted(middleware - _NOT_NEEDED) + own


def own_methods(kind: type) -> list[str]:
    """Return the methods of a class through which an answer goes that are not FastAPI's own."""
    found = {name: _definer(kind, name) for name in _ANSWERING}
    return [
        f"{kind.__name__}.{name}"
        for name, owner in found.items()
        if owner is not None and owner.__module__.partition(".")[0] not in (*_FRAMEWORK, "builtins")
    ]


def _definer(kind: type, name: str) -> type | None:
    return next((each for each in kind.__mro__ if name in vars(each)), None)


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
    found = _part(app, *_PARTS[path])
    if found is None and path in {getattr(each, "path", "") for each in app.routes}:
        name = _PARTS[path][0]
        if not hasattr(app.state, name):
            raise LookupError(f"the application's state has no {name}")
    return found


def models(app: Any) -> Any:
    """Return the part of vLLM's server that knows the names of its model and of its adapters.

    Raises:
        ConfigurationError: there is none.
    """
    found = _part(app, "openai_serving_models", "OpenAIServingModels")
    if found is None:
        raise needs.unservable("the application's state has no openai_serving_models")
    return found


def _part(app: Any, name: str, kind: str) -> Any:
    """Return a member of an application's state, by its name or else by its class."""
    if hasattr(app.state, name):
        return getattr(app.state, name)
    state = vars(app.state)
    members = state.get("_state", state).values()
    return next((each for each in members if type(each).__name__ == kind), None)


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
