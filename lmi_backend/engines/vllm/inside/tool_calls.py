"""Whole answers of vLLM's server in which a model has begun a tool call, and not finished it.

vLLM hands on the markup of such a call as if the model had said it; in a stream it sends nothing of
that. Here a whole answer has the content that a stream has.
"""

from __future__ import annotations

import inspect
import json
import logging
from http import HTTPStatus
from typing import Any, Final

from lmi_backend.engines.vllm.inside import fast_paths

_log = logging.getLogger(__name__)

_SERVERS: Final = ("openai_serving_chat", "anthropic_serving_messages")
"""Members of the application's state that answer chats, and Anthropic's messages."""


def attach(state: Any) -> None:
    """See the whole answers of an application from now on.

    Args:
        state: of vLLM's application.
    """
    servers = [server for name in _SERVERS if (server := getattr(state, name, None)) is not None]
    expected = "a method that makes a whole answer of a request and a tokenizer"
    # All or none: one rule for both.
    if fast_paths.probe(
        "whole_tool_calls", expected, lambda: [ToolAnswers(each) for each in servers]
    ):
        for server in servers:
            server.chat_completion_full_generator = ToolAnswers(server).make


class ToolAnswers:
    """The whole answers of one of vLLM's servers.

    Args:
        server: an OpenAIServingChat.
    """

    def __init__(self, server: Any) -> None:
        self._server, self._own = server, server.chat_completion_full_generator
        self._signature = inspect.signature(self._own)
        if not inspect.iscoroutinefunction(self._own):
            raise TypeError("chat_completion_full_generator is no coroutine")
        if lacking := {"request", "tokenizer"} - self._signature.parameters.keys():
            raise TypeError(f"chat_completion_full_generator takes no {', '.join(sorted(lacking))}")
        self._is_messages = hasattr(server, "messages_full_converter")

    async def make(self, *args: Any, **kwargs: Any) -> Any:
        """Make an answer as vLLM does, and mend it."""
        made = await self._own(*args, **kwargs)
        given = self._signature.bind(*args, **kwargs).arguments
        for choice in getattr(made, "choices", ()):  # an error has none
            calls = choice.message.tool_calls or []
            if not calls:
                self._mend(choice, given["request"], given["tokenizer"])
            elif self._is_messages and not all(map(_has_object, calls)):
                if choice.finish_reason != "length":
                    return self._refusal()
                choice.message.tool_calls = [each for each in calls if _has_object(each)]
        return made

    def _mend(self, choice: Any, request: Any, tokenizer: Any) -> None:
        """Mend an answer without tool calls."""
        if choice.finish_reason == "tool_calls":
            choice.finish_reason = "stop"
        is_cut = choice.finish_reason == "length" or isinstance(choice.stop_reason, str)
        message = choice.message
        if is_cut and message.content and request.tools and request.tool_choice != "none":
            message.content = self._shown(message.content, request, tokenizer)

    def _shown(self, text: str, request: Any, tokenizer: Any) -> str:
        """Return what a stream shows of a text."""
        kind = getattr(getattr(self._server, "parser_cls", None), "tool_parser_cls", None)
        if kind is None:
            return text
        try:
            parser = kind(tokenizer, request.tools)
            ids = tokenizer.encode(text, add_special_tokens=False)
            delta = parser.extract_tool_calls_streaming("", text, text, [], ids, ids, request)
        except Exception as error:  # noqa: BLE001  a parser of anybody's, and a text of a model's
            _log.debug("the tool parser cannot read an answer that is cut: %s", error)
            return text
        return (delta and delta.content) or ""

    def _refusal(self) -> Any:
        """Return the error of an answer whose arguments Anthropic's format cannot carry."""
        return self._server.create_error_response(
            "the model called a tool with arguments that are no JSON object",
            err_type="InternalServerError",
            status_code=HTTPStatus.INTERNAL_SERVER_ERROR,
        )


def _has_object(call: Any) -> bool:
    try:
        return isinstance(json.loads(call.function.arguments), dict)
    except (ValueError, RecursionError):
        return False
