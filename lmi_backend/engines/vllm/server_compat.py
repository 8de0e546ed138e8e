"""The names of vLLM's HTTP server, as compat.py has those of its engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_type_hints

from lmi_backend.engines.vllm.compat import FlexibleArgumentParser

CHATS = "/v1/chat/completions"
_WATCHING = (
    "middleware", "enable_request_id_headers", "enable_server_load_tracking", "enable_log_outputs",
    "sse_keep_alive_interval",
)  # fmt: skip
"""Options of vLLM's server that have each response looked at, or written to."""


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


def call(function: Callable[..., Any], **given: Any) -> Any:
    """Call a function of vLLM's with what its release takes of these arguments."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in taken})


def stream_calls(state: Any) -> dict[str, tuple[Callable[..., Any], Any]]:
    """Return what vLLM's server calls for streams that can be plain, and the models of the bodies.

    Args:
        state: of its application. Chats are not plain where more than text is read out of them.
    """
    arguments = getattr(state, "args", None)
    if arguments is None or any(getattr(arguments, name, None) for name in _WATCHING):
        return {}
    calls = {}
    chat = getattr(state, "openai_serving_chat", None)
    completion = getattr(state, "openai_serving_completion", None)
    parsers = ("parser_cls", "reasoning_parser", "tool_parser")  # the first since 0.30
    if chat and not any(getattr(chat, name, None) is not None for name in parsers):
        calls[CHATS] = chat.create_chat_completion
    if completion:
        calls["/v1/completions"] = completion.create_completion
    return {
        path: (create, get_type_hints(inspect.unwrap(create))["request"])
        for path, create in calls.items()
    }


def http_request(scope: dict[str, Any], app: Any) -> Any:
    """Return a request as vLLM's server hands it on."""
    from starlette.requests import Request  # noqa: PLC0415

    return Request({**scope, "app": app, "state": {}})
