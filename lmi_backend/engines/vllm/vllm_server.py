"""vLLM's HTTP server: its parts, wherever a release has them, and what they do besides here."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from lmi_backend.clients.openai import CHATS, COMPLETIONS
from lmi_backend.engines.vllm import compat, fast_paths, names
from lmi_backend.printable import cut, with_options

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    return compat.checked(make(own), "make_arg_parser", "parse_args")


def _import_tool_parser(path: str) -> None:
    # Looked up for a user's file alone: a release may have none.
    names.ToolParserManager.import_tool_parser(path)


def cut_messages() -> None:
    """Have vLLM's server cut the text of an error, which it looks for paths in, and name options.

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
    return with_options(cut(value)) if isinstance(value, str) else value


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
        raise compat.unservable("the application's state has no openai_serving_models")
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
    # Empty, not absent: that is a file of no name.
    os.environ.update(dict.fromkeys(_HIDDEN, ""))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


# Answers name their model as the client does, by any of its names.

_asked: Final[ContextVar[str]] = ContextVar("asked_name", default="")


class _Models:
    """What an OpenAIServingModels does besides vLLM's own work."""

    def model_name(self, *args: Any, **kwargs: Any) -> Any:
        """Return the name that an answer gives its model."""
        name = super().model_name(*args, **kwargs)  # type: ignore[misc]
        # That of an adapter is another's.
        is_first = name == self.first_name  # type: ignore[attr-defined]
        return _asked.get() or name if is_first else name


class AskedName:
    """Has vLLM's server answer by the name in a body, if it is one of the model's.

    Args:
        models: vLLM's OpenAIServingModels.
        names: of the model; answers carry the first of them where a body names none.
    """

    def __init__(self, models: Any, names: list[str]) -> None:
        self._models, self._names, self._first = models, frozenset(names), names[0]
        fast_paths.probe(
            "asked_name", "a method that gives an answer its model's name", self._attach
        )

    def _attach(self) -> None:
        if (found := self._models.model_name()) != self._first:
            raise ValueError(f"it gives {found!r}, and the model is called {self._first!r}")
        self._models.first_name = self._first
        compat.subclass(self._models, _Models)

    @contextmanager
    def asked(self, name: object) -> Iterator[None]:
        """Answer a body that calls the model by a name."""
        token = _asked.set(name if isinstance(name, str) and name in self._names else "")
        try:
            yield
        finally:
            _asked.reset(token)


# Prompts that a completion shows before its answers (`echo`).


class ShownPrompt:
    """The prompt of one request; `mend` looks at each output before vLLM's server does.

    Args:
        params: vLLM's sampling parameters.
        given: what the server calls the engine with.
        is_all: whether the prompt is all that is wanted. vLLM generates a token to get there, which
            its server would count.
        is_shown: whether it is wanted at all.
    """

    def __init__(
        self, params: Any, given: Any = None, *, is_all: bool, is_shown: bool = True
    ) -> None:
        self._is_all = is_all
        # The server leaves an empty text out, and fails when it looks for that.
        is_of_tokens = isinstance(given, Mapping) and given.get("type") == "token"
        self._is_empty = is_shown and is_of_tokens and "prompt" not in given
        self._has_several = getattr(params, "n", 1) > 1
        self._logprobs: Any = None

    def mend(self, output: Any) -> None:
        """Mend an output of the request.

        Each of several answers brings the log probabilities of the prompt with its first output. If
        one of them is ahead, its second output may be merged with the first of another: that then
        has none, and vLLM's server looks for the prompt's tokens among the answer's.
        """
        if self._has_several and hasattr(output, "prompt_logprobs"):
            self._logprobs = self._logprobs or output.prompt_logprobs
            # Most have none, and a release may let nobody change an output.
            if output.prompt_logprobs is not self._logprobs:
                output.prompt_logprobs = self._logprobs
        if self._is_empty and getattr(output, "prompt", "") is None:
            output.prompt = ""
        if self._is_all:
            for each in output.outputs:
                each.text, each.token_ids = "", []


# Anthropic's prefill: a model continues the last message of a body that is the assistant's.
#
# vLLM's server for Anthropic's bodies closes that message, and begins a new one.

_PREFILL: Final = "prefill"
_CHAT_MAKER: Final = "a function that makes a chat of a message"
_PREFILLS: Final = ("b", [{"type": "text", "text": "b"}])
"""What an assistant's message may have, of those that are continued."""


def attach_prefill(app: Any) -> None:
    """Have messages to vLLM's application continued from now on."""
    fast_paths.probe(_PREFILL, _CHAT_MAKER, lambda: _attach_prefill(app))


def _attach_prefill(app: Any) -> None:
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
        if fast_paths.is_on(_PREFILL):
            try:
                _continue(anthropic_request, chat)
            except Exception as error:  # noqa: BLE001  vLLM's server begins a new message, then
                fast_paths.turn_off(_PREFILL, _CHAT_MAKER, f"{type(error).__name__}: {error}")
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
