"""Anthropic's prefill: a model continues the last message of a body that is the assistant's.

vLLM's server for Anthropic's bodies closes that message, and begins a new one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from lmi_backend.engines.vllm.inside import fast_paths

_NAME: Final = "prefill"
_EXPECTED: Final = "a function that makes a chat of a message"


def attach(state: Any) -> None:
    """Have messages continued from now on.

    Args:
        state: of vLLM's application.
    """
    server = getattr(state, "anthropic_serving_messages", None)
    if server is None:
        return
    if fast_paths.probe(_NAME, _EXPECTED, lambda: _check(server)):
        server.to_chat_completion_request = _Continuing(server.to_chat_completion_request)


def _check(server: Any) -> None:
    convert = server.to_chat_completion_request
    if inspect.iscoroutinefunction(convert):
        raise TypeError("to_chat_completion_request is a coroutine")
    fields = inspect.signature(convert, eval_str=True).return_annotation.model_fields
    if lacking := {"add_generation_prompt", "continue_final_message"} - fields.keys():
        raise TypeError(f"its chat has no {', '.join(sorted(lacking))}")


class _Continuing:
    """Makes chats of Anthropic's bodies as vLLM does, and has a prefill continued."""

    def __init__(self, own: Callable[..., Any]) -> None:
        self._own = own

    def __call__(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        chat = self._own(request, *args, **kwargs)
        if request.messages and _is_prefill(request.messages[-1]) and fast_paths.is_on(_NAME):
            try:
                chat.add_generation_prompt, chat.continue_final_message = False, True
            except Exception as error:  # noqa: BLE001  vLLM's server begins a new message, then
                fast_paths.turn_off(_NAME, _EXPECTED, f"{type(error).__name__}: {error}")
        return chat


def _is_prefill(message: Any) -> bool:
    """Tell whether a message is the assistant's, and has nothing but text."""
    content = message.content
    if message.role != "assistant" or not content:
        return False
    return isinstance(content, str) or all(each.type == "text" and each.text for each in content)
