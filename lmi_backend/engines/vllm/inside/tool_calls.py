"""Whole answers of vLLM's server in which a model has begun a tool call, and not finished it.

vLLM hands on the markup of such a call as if the model had said it; in a stream it sends nothing of
that. Here a whole answer has the content that a stream has.
"""

from __future__ import annotations

import inspect
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from lmi_backend.clients.openai.paths import CHATS
from lmi_backend.engines.vllm.inside import compat, fast_paths
from lmi_backend.engines.vllm.inside.server_compat import MESSAGES, answering

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger(__name__)

_NAME: Final = "whole_tool_calls"
_EXPECTED: Final = "a method that makes a whole answer of a request and a tokenizer"
_ANSWERS: Final = "whole answers with choices, or with an error"
_MAKER: Final = "chat_completion_full_generator"
_Change = tuple[Any, str, Any]
"""An object, its member, and the member's new value."""


def attach(app: Any) -> None:
    """See the whole answers of vLLM's application from now on."""
    fast_paths.probe(_NAME, _EXPECTED, lambda: _attach(app))


def _attach(app: Any) -> None:
    found = {path: answering(app, path) for path in (CHATS, MESSAGES)}
    # All or none: one rule for both.
    made = [
        (server, ToolAnswers(server, is_messages=path == MESSAGES))
        for path, server in found.items()
        if server is not None
    ]
    for server, answers in made:
        server.tool_answers = answers
        compat.subclass(server, _WholeAnswers)


class _WholeAnswers:
    """What an OpenAIServingChat does besides vLLM's own work."""

    tool_answers: ToolAnswers

    async def chat_completion_full_generator(self, *args: Any, **kwargs: Any) -> Any:
        """Return a whole answer, which shows of a cut tool call what a stream shows."""
        made = await super().chat_completion_full_generator(*args, **kwargs)  # type: ignore[misc]
        return self.tool_answers.mended(made, args, kwargs)


class ToolAnswers:
    """The whole answers of one of vLLM's servers.

    Args:
        server: an OpenAIServingChat.
        is_messages: whether it makes Anthropic's messages of them.
    """

    def __init__(self, server: Any, *, is_messages: bool) -> None:
        own = getattr(server, _MAKER)
        self._server, self._signature = server, inspect.signature(own)
        if not inspect.iscoroutinefunction(own):
            raise TypeError(f"{_MAKER} is no coroutine")
        if lacking := {"request", "tokenizer"} - self._signature.parameters.keys():
            raise TypeError(f"{_MAKER} takes no {', '.join(sorted(lacking))}")
        self._is_messages = is_messages

    def mended(self, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return an answer of vLLM's, mended; as it is if it is of another kind.

        Args:
            made: the answer.
            args: that it was made of.
            kwargs: the others.
        """
        if not fast_paths.is_on(_NAME):
            return made
        try:
            given = self._signature.bind(*args, **kwargs).arguments
            refusal, changes = self._judge(made, given["request"], given["tokenizer"])
            for owner, name, value in changes:
                setattr(owner, name, value)
        except Exception as error:  # noqa: BLE001  vLLM's answer is there
            fast_paths.turn_off(_NAME, _ANSWERS, f"{type(error).__name__}: {error}")
            return made
        return made if refusal is None else refusal

    def _judge(self, made: Any, request: Any, tokenizer: Any) -> tuple[Any, list[_Change]]:
        """Return what is answered instead, if anything is, and else what is to be changed.

        Raises:
            TypeError: the answer is of another kind.
        """
        changes: list[_Change] = []
        if not hasattr(made, "choices") and hasattr(made, "error"):
            return None, changes
        for choice in _checked("choices", made.choices, list):
            _checked("finish_reason", choice.finish_reason, str)
            calls = _checked("tool_calls", choice.message.tool_calls, list | None) or []
            if not calls:
                changes += self._mended(choice, request, tokenizer)
            elif self._is_messages and not all(map(_has_object, calls)):
                if choice.finish_reason != "length":
                    return self._refusal(), []
                whole = [each for each in calls if _has_object(each)]
                changes.append((choice.message, "tool_calls", whole))
        return None, changes

    def _mended(self, choice: Any, request: Any, tokenizer: Any) -> Iterator[_Change]:
        """Yield what is to be changed in an answer without tool calls."""
        reason, message = choice.finish_reason, choice.message
        if reason == "tool_calls":
            yield choice, "finish_reason", "stop"
        is_cut = reason == "length" or isinstance(choice.stop_reason, str)
        if is_cut and message.content and request.tools and request.tool_choice != "none":
            yield message, "content", self._shown(message.content, request, tokenizer)

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


def _checked(name: str, value: Any, kind: Any) -> Any:
    """Return a member of an answer, if it is what it was: an iterator could be read only once.

    Raises:
        TypeError: it is of another kind.
    """
    if not isinstance(value, kind):
        raise TypeError(f"its {name} is of type {type(value).__name__}")
    return value


def _has_object(call: Any) -> bool:
    try:
        return isinstance(json.loads(call.function.arguments), dict)
    except (ValueError, RecursionError):
        return False
