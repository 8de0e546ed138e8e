"""The names of vLLM's HTTP server, as compat.py has those of its engine."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

from lmi_backend.engines.vllm.compat import FlexibleArgumentParser
from lmi_backend.printable import cut

CHATS = "/v1/chat/completions"
_WATCHING = (
    "middleware", "enable_request_id_headers", "enable_server_load_tracking", "enable_log_outputs",
    "sse_keep_alive_interval",
)  # fmt: skip
"""Options of vLLM's server that have each response looked at, or written to."""
_NOT_NEEDED = {"CORSMiddleware", "PrometheusInstrumentatorMiddleware", "ScalingMiddleware"}
"""Middleware of vLLM's server that does nothing for an answer: no web page asks here, nobody reads
the counts, and the engine is not scaled through this server."""


def http_server() -> SimpleNamespace:
    """Return the parts of vLLM's HTTP server."""
    try:  # 0.30: moved
        from vllm.entrypoints.launchers.api_server.app_state import init_app_state  # noqa: PLC0415
        from vllm.entrypoints.launchers.app import build_app  # noqa: PLC0415
        from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: PLC0415
    except ImportError:
        from vllm.entrypoints.openai.api_server import (  # noqa: PLC0415
            build_app,
            init_app_state,
        )
        from vllm.entrypoints.openai.cli_args import make_arg_parser  # noqa: PLC0415
    try:  # 0.13: moved
        from vllm.tool_parsers import ToolParserManager  # noqa: PLC0415
    except ImportError:
        from vllm.entrypoints.openai.tool_parsers import ToolParserManager  # noqa: PLC0415

    return SimpleNamespace(
        build_app=build_app,
        init_app_state=init_app_state,
        argument_parser=lambda: make_arg_parser(FlexibleArgumentParser()),
        import_tool_parser=ToolParserManager.import_tool_parser,
    )


def cut_messages() -> None:
    """Have vLLM's server cut the text of an error before it looks for paths in it.

    0.32 looks with an expression that takes the square of the text, on its only event loop: a
    reference of 120 kB, which the text quotes, takes a minute and a half.
    """
    for name, module in list(sys.modules.items()):
        own = getattr(module, "__dict__", {}).get("sanitize_message")
        if name.startswith("vllm.") and callable(own):
            module.sanitize_message = partial(_sanitized, own)  # type: ignore[attr-defined]


def _sanitized(sanitize: Callable[[str], str], message: str) -> str:
    return sanitize(cut(message))


def call(function: Callable[..., Any], **given: Any) -> Any:
    """Call a function of vLLM's with what its release takes of these arguments."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in taken})


def endpoints(app: Any) -> dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]]:
    """Return the functions that answer bodies, by path, and what reads the bodies for them.

    Args:
        app: vLLM's. Nothing is returned where its user, or a plugin, has each response looked at.
    """
    arguments = getattr(app.state, "args", None)
    if arguments is None or any(getattr(arguments, name, None) for name in _WATCHING):
        return {}
    if not {each.cls.__name__ for each in app.user_middleware} <= _NOT_NEEDED:
        return {}
    return {
        route.path: (endpoint, read)
        for route in reversed(app.routes)  # the first of a path answers
        if "POST" in (getattr(route, "methods", None) or ())
        for endpoint in [inspect.unwrap(route.endpoint)]
        if (read := _reader_of_body(endpoint)) is not None
    }


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


def plain_paths(state: Any) -> set[str]:
    """Return the paths whose streams can be plain.

    Args:
        state: of vLLM's application. Chats are not plain where more than text is read out of them.
    """
    paths = {"/v1/completions"}
    chat = getattr(state, "openai_serving_chat", None)
    parsers = ("parser_cls", "reasoning_parser", "tool_parser")  # the first since 0.30
    if chat and not any(getattr(chat, name, None) is not None for name in parsers):
        paths.add(CHATS)
    return paths


def http_request(scope: dict[str, Any], app: Any) -> Any:
    """Return a request as vLLM's server hands it on."""
    from starlette.requests import Request  # noqa: PLC0415

    return Request({**scope, "app": app, "state": {}})
