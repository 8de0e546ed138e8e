"""vLLM's HTTP server: its parts, wherever a release has them, and what they do besides here."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, get_args, get_type_hints

from lmi_backend.clients.openai import CHATS, COMPLETIONS
from lmi_backend.engines.vllm import compat, fast_paths, names

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
    CHATS: "openai_serving_chat",
    MESSAGES: "anthropic_serving_messages",
    COMPLETIONS: "openai_serving_completion",
}
"""Paths, and the members of the application's state that answer them."""

_HIDDEN: Final = ("VLLM_API_KEY", "CUSTOM_SCRIPT_FILENAME")
"""What the environment must not say to vLLM's server.

Its key would guard some clients' way to the model and not the others'. The file, model.py where it
is not named, is run when the server is built, and LMI's users keep a handler of LMI's there.
"""


def argument_parser() -> Any:
    parser = names.make_arg_parser(names.FlexibleArgumentParser())
    return compat.checked(parser, "make_arg_parser", "parse_args")


def import_server() -> None:
    """Import vLLM's server, which takes seconds."""
    for name in ("build_app", "init_app_state", "make_arg_parser"):
        getattr(names, name)


def call(function: Callable[..., Any], **given: Any) -> Any:
    """Call a function of vLLM's with what its release takes of these arguments."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in given.items() if name in taken})


def uncounted(app: Any) -> Any:
    """Return an application that does not count its requests: nobody reads it here.

    With some releases of FastAPI what counts fails, and each answer is an error.
    """
    middleware = [each for each in app.user_middleware if each.cls.__name__ != _COUNTING]
    # What vLLM does for SageMaker may have built the stack already.
    return compat.replaced(app, user_middleware=middleware, middleware_stack=None)


def watchers(app: Any) -> list[str]:
    """Return the options and the middleware that look at each response of vLLM's application."""
    options = [name for name in _WATCHING if getattr(app.state.args, name, None)]
    # Its values come with the last output of a request (0.32).
    if getattr(app.state.args, _SPECULATION, "none") not in (None, "none"):
        options.append(_SPECULATION)
    middleware = {each.cls.__name__ for each in app.user_middleware}
    return options + sorted(middleware - _NOT_NEEDED)


def members_read(app: Any) -> dict[str, frozenset[str]]:
    """Return the members that an application reads of the bodies of each path, where it tells."""
    members = {}
    for route in reversed(app.routes):  # the first of a path answers
        try:
            hint = get_type_hints(inspect.unwrap(route.endpoint))["request"]
            kinds = [each.model_fields for each in get_args(hint) or (hint,)]
        except (AttributeError, KeyError, NameError, TypeError):
            continue
        names = {name for kind in kinds for name in kind}
        names |= {each.alias for kind in kinds for each in kind.values() if each.alias}
        members[route.path] = frozenset(names)
    return members


def answering(app: Any, path: str) -> Any:
    """Return the part of vLLM's server that answers a path; None if none does.

    Raises:
        LookupError: there is a route, and the application's state does not have the part.
    """
    name = _PARTS[path]
    part = getattr(app.state, name, None)
    is_lacking = part is None and not hasattr(app.state, name)
    if is_lacking and path in {getattr(each, "path", "") for each in app.routes}:
        raise LookupError(f"the application's state has no {name}")
    return part


def models(app: Any) -> Any:
    return compat.checked(
        app.state, "init_app_state", "openai_serving_models"
    ).openai_serving_models


@contextmanager
def hidden() -> Iterator[None]:
    earlier = {name: os.environ.get(name) for name in _HIDDEN}
    # Empty, not absent: that is a file of no name.
    os.environ.update(dict.fromkeys(_HIDDEN, ""))
    try:
        yield
    finally:
        for name, value in earlier.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


# Answers name their model as the client does, by any of its names.

requested_name: Final[ContextVar[object]] = ContextVar("requested_name", default=None)
"""What the body of this task calls its model."""


class _Models:
    """What an OpenAIServingModels does besides vLLM's own work."""

    own_names: Collection[str]
    """Of the model itself: an adapter's is another's."""

    def model_name(self, *args: Any, **kwargs: Any) -> Any:
        name, wanted = super().model_name(*args, **kwargs), requested_name.get()  # type: ignore[misc]
        return wanted if name in self.own_names and wanted in self.own_names else name


def attach_requested_name(app: Any) -> None:
    own = app.state.args.served_model_name
    fast_paths.probe(
        "asked_name",
        "a method that gives an answer its model's name",
        lambda: compat.subclass(models(app), _Models, own_names=own),
    )


# Prompts that a completion shows before its answers (`echo`).


class EchoedPrompt:
    """The prompt of one request; `mended` looks at each output before vLLM's server does.

    Args:
        is_all: whether the prompt is all that is wanted. vLLM generates a token to get there, which
            its server would count.
    """

    def __init__(
        self, params: Any, given: Any = None, *, is_all: bool, is_echoed: bool = True
    ) -> None:
        self._is_all = is_all
        # The server leaves an empty text out, and fails when it looks for that.
        is_of_tokens = isinstance(given, Mapping) and given.get("type") == "token"
        self._is_empty = is_echoed and is_of_tokens and "prompt" not in given
        self._has_several = getattr(params, "n", 1) > 1
        self._logprobs: Any = None

    def mended(self, output: Any) -> Any:
        """Return an output of the request, mended.

        Each of several answers brings the log probabilities of the prompt with its first output. If
        one of them is ahead, its second output may be merged with the first of another: that then
        has none, and vLLM's server looks for the prompt's tokens among the answer's.
        """
        if self._has_several and hasattr(output, "prompt_logprobs"):
            self._logprobs = self._logprobs or output.prompt_logprobs
            if output.prompt_logprobs is not self._logprobs:  # most have none
                output = compat.replaced(output, prompt_logprobs=self._logprobs)
        if self._is_empty and getattr(output, "prompt", "") is None:
            output = compat.replaced(output, prompt="")
        if self._is_all:
            empty = [compat.replaced(each, text="", token_ids=[]) for each in output.outputs]
            output = compat.replaced(output, outputs=empty)
        return output


# Anthropic's prefill: a model continues the last message of a body that is the assistant's.
#
# vLLM's server for Anthropic's bodies closes that message, and begins a new one.


def attach_prefill(app: Any) -> None:
    if (server := answering(app, MESSAGES)) is not None:
        fast_paths.probe(
            "prefill",
            "a function that makes a chat of a message",
            lambda: compat.subclass(server, _Messages),
        )


class _Messages:
    """What an AnthropicServingMessages does besides vLLM's own work."""

    def to_chat_completion_request(self, anthropic_request: Any, *args: Any, **kwargs: Any) -> Any:
        own = super().to_chat_completion_request  # type: ignore[misc]
        chat, messages = own(anthropic_request, *args, **kwargs), anthropic_request.messages
        if messages and _is_prefill(messages[-1]):
            return compat.replaced(chat, add_generation_prompt=False, continue_final_message=True)
        return chat


def _is_prefill(message: Any) -> bool:
    content = message.content
    if message.role != "assistant" or not content:
        return False
    return isinstance(content, str) or all(each.type == "text" and each.text for each in content)
