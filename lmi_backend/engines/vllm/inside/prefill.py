"""Anthropic's prefill: a model continues the last message of a body that is the assistant's.

vLLM's server for Anthropic's bodies closes that message, and begins a new one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from lmi_backend.engines.vllm.inside import compat, fast_paths
from lmi_backend.engines.vllm.inside.server_compat import MESSAGES, answering

_NAME: Final = "prefill"
_EXPECTED: Final = "a function that makes a chat of a message"
_PREFILLS: Final = ("b", [{"type": "text", "text": "b"}])
"""What an assistant's message may have, of those that are continued."""


def attach(app: Any) -> None:
    """Have messages to vLLM's application continued from now on."""
    fast_paths.probe(_NAME, _EXPECTED, lambda: _attach(app))


def _attach(app: Any) -> None:
    server = answering(app, MESSAGES)
    if server is not None:
        _check(server.to_chat_completion_request)
        compat.subclass(server, _Messages)


def _check(convert: Callable[..., Any]) -> None:
    """Try it with a body that begins the answer.

    Raises:
        Exception: a chat of such a body is of another kind, or would begin a new message.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415  as vLLM's server, when it is built

    if inspect.iscoroutinefunction(convert):
        raise TypeError("to_chat_completion_request is a coroutine")
    request, *_ = inspect.signature(convert, eval_str=True).parameters.values()
    for content in _PREFILLS:
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]
        body = {"model": "a", "max_tokens": 1, "messages": messages}
        read = TypeAdapter(request.annotation).validate_python(body)
        chat = convert(read)
        fields = type(chat).model_fields
        if lacking := {"add_generation_prompt", "continue_final_message"} - fields.keys():
            raise TypeError(f"its chat has no {', '.join(sorted(lacking))}")
        _continue(read, chat)
        if chat.add_generation_prompt or not chat.continue_final_message:
            raise ValueError(f"the assistant's message is not seen in {read.messages!r}")


class _Messages:
    """What an AnthropicServingMessages does besides vLLM's own work."""

    def to_chat_completion_request(self, anthropic_request: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the chat of a body, which continues a prefill."""
        own = super().to_chat_completion_request  # type: ignore[misc]
        chat = own(anthropic_request, *args, **kwargs)
        if fast_paths.is_on(_NAME):
            try:
                _continue(anthropic_request, chat)
            except Exception as error:  # noqa: BLE001  vLLM's server begins a new message, then
                fast_paths.turn_off(_NAME, _EXPECTED, f"{type(error).__name__}: {error}")
        return chat


def _continue(request: Any, chat: Any) -> None:
    """Have a chat continue the last message of its request, if that is a prefill."""
    if request.messages and _is_prefill(request.messages[-1]):
        chat.add_generation_prompt, chat.continue_final_message = False, True


def _is_prefill(message: Any) -> bool:
    """Tell whether a message is the assistant's, and has nothing but text."""
    content = message.content
    if message.role != "assistant" or not content:
        return False
    return isinstance(content, str) or all(each.type == "text" and each.text for each in content)
